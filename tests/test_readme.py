"""The README's program runs."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def test_the_program_trains_and_loads(tmp_path):
    (program,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    script = tmp_path / "train.py"
    shortened = program.replace("50_000", "3_000")
    script.write_text(f"{shortened}\nprint('learner steps:', policy.learner_steps)")
    result = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=1000
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert int(re.search(r"^learner steps: (\d+)$", result.stdout, re.MULTILINE)[1]) > 0
    assert (tmp_path / "runs" / "mine" / "summary.json").exists()
