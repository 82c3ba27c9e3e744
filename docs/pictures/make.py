"""Draw `audit.png`: the report of an audited answer, as a browser shows it (needs Chromium, and the dev extra).

`end_to_end.png` is taken out of the notebook that draws it.
"""

import base64
import json
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from isr_rag import ISRGate

PICTURE = Path(__file__).with_name("audit.png")
NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "08_end_to_end.ipynb"
QUESTION = "Who was Marie Curie?"
ANSWER = """Marie Curie discovered polonium and radium together with her husband Pierre [1]. \
She was born in Paris [1]. \
In 1911 she won the Nobel Prize in Chemistry [2]. \
She died in 1934 [2]."""
EVIDENCE = [
    "Marie Skłodowska Curie was born in Warsaw in 1867. With her husband Pierre she discovered the elements polonium "
    "and radium in 1898.",
    "She shared the Nobel Prize in Physics of 1903 with Pierre Curie and Henri Becquerel, the first woman to receive a "
    "Nobel Prize. In 1911 she won the Nobel Prize in Chemistry.",
    "Marie Curie died on 4 July 1934 at the Sancellemoz sanatorium in Passy, France.",
]


def main() -> None:
    """Audit the answer with the default gate and photograph its report; copy the notebook's picture."""
    audit = ISRGate().audit(question=QUESTION, answer=ANSWER, evidence=EVIDENCE, h_star=0.2)
    print(audit)
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        report = Path(folder) / "report.html"
        audit.to_html(report)
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = opened.new_page(viewport={"width": 1180, "height": 600}, device_scale_factor=1.2)
        page.goto(f"{report.as_uri()}#s3")
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=PICTURE, full_page=False)
        opened.close()
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    shown = [output.get("data", {}) for cell in cells for output in cell.get("outputs", [])]
    (drawn,) = (data["image/png"] for data in shown if "image/png" in data)
    PICTURE.with_name("end_to_end.png").write_bytes(base64.b64decode("".join(drawn)))


if __name__ == "__main__":
    main()
