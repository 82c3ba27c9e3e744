"""Training the embedded adjudicator: data mix, network, runs, evaluation, model card."""
