"""The gate: Algorithm 1 for one item or many, sync or async.

`algorithm_1` is the method itself, and the place to begin. `settings` is what a decision depends on, `record` what is
known of an item on its way to a decision, `within` the model's window and the policy for failures, `scoring` and
`auditing` the calls of the scorer, and `gate` the class that people use.
"""

from isr_rag.gate.gate import ISRGate as ISRGate
