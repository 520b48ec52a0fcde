"""fedtune export RUN -o best.yaml: keep the winning configuration."""

from __future__ import annotations

from fedtune.option import call
from fedtune.options import AsJson, ExportRequest

GUIDE = "export-a-model"
EXAMPLES = """\
# Keep the best configuration:
fedtune export runs/dfrd-alpha_lambda -o best.yaml
# Print trial 7 as JSON:
fedtune export runs/dfrd-alpha_lambda --trial 7 --json
# Of a run under several conditions, the best under one of them:
fedtune export runs/fedkf-fairness --where omega=0.1 -o best.yaml
# Keep every learning curve of a search and of its final run:
fedtune export runs/dfrd-alpha_lambda runs/dfrd-alpha_lambda-final \\
    --table curves.npz
# Keep all trials as a study that any tool of Optuna opens:
fedtune export runs/dfrd-alpha_lambda --study study.db
"""


def command(request: ExportRequest, *, as_json: AsJson = False) -> None:
    """Write the best configuration of a search to a file, with a record of where it came from."""
    from fedtune.console.busy import reading

    with reading("reading the run"):
        from fedtune.api.export import export
        from fedtune.commands import _output

        found = call(export, request)
    if request.study is not None:
        _output.study_exported(found, as_json)
    elif request.table is not None:
        _output.table_exported(found, str(request.table), as_json)
    else:
        _output.exported(found, request.output, as_json)
