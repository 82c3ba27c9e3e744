#!/usr/bin/env bash
# Installs the wheels in dist/ for each combination that README names, in a new environment, and tries it there in an
# empty folder. Usage: .github/wheels.sh [COMBINATION...], a combination being the name of a function below `own_gate`.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH
pip() { python3 -m pip --python "$work/env/bin/python" "$@"; }
(cd dist && ls ./*.whl) | sed -E 's,./([^-]+)-([^-]+)-.*,\1==\2,' > "$work/own.txt"  # no other version of ours

with() {  # a new environment with these packages; torch by its exact version first, and unpacked once for all
    rm -rf "$work/env" "$work/empty"
    mkdir "$work/empty"
    python3 -m venv --without-pip "$work/env"
    site=$(echo "$work"/env/lib/python*/site-packages)
    if [ "$1" = torch ]; then
        shift
        [ -d "$work/torch" ] || pip install --quiet --constraint constraints.txt --target "$work/torch" torch==2.13.0
        cp -al "$work/torch/." "$site"
    fi
    pip install --quiet --find-links dist --constraint "$work/own.txt" --constraint constraints.txt "$@"
    pip check
    find "$site" -type f -printf '%s\n' | awk -v of="$*" '{ size += $1 } END { printf "%s: %.0f MB\n", of, size / 1e6 }'
    cd "$work/empty"
    PATH=$work/env/bin:$PATH
}
shown() {  # with the judge: the code of a README up to its first block of output, which it must print
    isr-rag setup
    python - "$root/$1/README.md" <<'PYTHON'
import contextlib, io, pathlib, re, sys
code, _, rest = pathlib.Path(sys.argv[1]).read_text("utf-8").partition("```text\n")
with contextlib.redirect_stdout(io.StringIO()) as printed:
    exec("\n".join(re.findall(r"^```python\n(.*?)^```$", code, flags=re.M | re.S)), {"__name__": "readme"})
assert printed.getvalue().endswith(rest.partition("```")[0]), printed.getvalue()
PYTHON
}
own_gate='
from isr_rag import ISRGate as Gate
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
own = Gate(FixedScorer([0.99]), Oracle(0.99))
text, question, answer = "The Seine flows through Paris.", "Where does the Seine flow?", "through Paris"
'

core() {
    with isr-rag
    python -c "$own_gate
assert own.decide([text], question=question, answer=answer).answered"
}
documents() {
    with 'isr-rag[cli,documents]'
    isr-rag --help > /dev/null
    python - <<'PYTHON'
from isr_rag.io.sources import chunks_of_document
PDF = """%PDF-1.4
1 0 obj <</Type/Catalog/Pages 2 0 R>> endobj
2 0 obj <</Type/Pages/Count 1/Kids[3 0 R]>> endobj
3 0 obj <</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>> endobj
4 0 obj <</Length 31>> stream
BT /F 9 Tf (It is blue.) Tj ET
endstream endobj
5 0 obj <</Type/Font/Subtype/Type1/BaseFont/Helvetica>> endobj
trailer <</Root 1 0 R>>
startxref
0
%%EOF
"""
for name, raw in {"a.pdf": PDF, "a.html": "<html><body><p>It is blue.</p></body></html>"}.items():
    assert ["It is blue."] == [chunk.text for chunk in chunks_of_document(raw.encode(), name)], name
PYTHON
}
judge() {
    with torch 'isr-rag[local,cli]'
    shown .
}
serving() {
    with torch 'isr-rag[local]' isr-rag-server
    isr-rag setup
    isr-rag serve --port 8765 &
    trap "kill $!" EXIT
    curl --fail --silent --show-error --retry 60 --retry-delay 5 --retry-connrefused http://127.0.0.1:8765/v1/decide \
        --json '{"claim": "The Seine flows through Paris.", "evidence": ["The Seine flows through Paris."]}'
}
remote() {
    with 'isr-rag[server]'
    python - <<'PYTHON'
from isr_rag.scorers.remote import ServerError, remote_scorer
try:
    remote_scorer("http://127.0.0.1:9/v1", retries=0)
except ServerError as error:  # nothing listens there
    print(error)
else:
    raise SystemExit("no error, although no server listens")
PYTHON
}
langchain() {
    with isr-rag langchain-isr
    python -c "$own_gate
from langchain_core.documents import Document
from langchain_isr import ISRGate
said = ISRGate(gate=own).invoke({'question': question, 'documents': [Document(text)], 'answer': answer})
assert said['isr']['action'] == 'answer'"
}
llama_index() {
    with isr-rag llama-index-postprocessor-isr
    python -c "$own_gate
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.isr import ISRGate
assert ISRGate(gate=own).postprocess_nodes([NodeWithScore(node=TextNode(text=text))], query_str=question)"
}
haystack() {
    with isr-rag isr-haystack
    python -c "$own_gate
from haystack import Document
from haystack_integrations.components.routers.isr import ISRGate
assert ISRGate(gate=own).run(question, [Document(content=text)])['answered']"
}
langchain_judge() {
    with torch 'langchain-isr[agents]' 'isr-rag[local,cli]'
    python -c 'from langchain_isr import ISRMiddleware'
    shown integrations/langchain-isr
}
llama_index_judge() {
    with torch llama-index-postprocessor-isr llama-index-llms-huggingface llama-index-retrievers-bm25 'isr-rag[local,cli]'
    shown integrations/llama-index-postprocessor-isr
}
haystack_judge() {
    with torch isr-haystack 'isr-rag[local,cli]'
    shown integrations/isr-haystack
}
laboratory() {
    with torch isr-lab
    isr-lab experiment --help > /dev/null
}
conformance() {
    with isr-rag-conformance
    cat > test_it.py <<'PYTHON'
from isr_rag.testing import FixedScorer
from isr_rag_conformance.contracts import ScorerContract
class TestIt(ScorerContract):
    def scorer(self): return FixedScorer(lambda prompt, ordering: 0.9)
PYTHON
    python -m pytest --quiet
}
regression() {
    with pytest-isr-rag
    echo '{"id": "a", "question": "Where does the Seine end?", "answers": ["English Channel"]}' > rag_questions.jsonl
    echo 'def test_it(rag_regression): rag_regression(lambda question: "in the English Channel")' > test_it.py
    python -m pytest --quiet --rag-update
    python -m pytest --quiet
}

[ $# -gt 0 ] || set -- core documents judge serving remote langchain llama_index haystack langchain_judge \
    llama_index_judge haystack_judge laboratory conformance regression
for combination in "$@"; do
    echo "== $combination"
    (cd "$root"; "$combination")
done
