"""Generated bad input: command lines, YAML files, data sets and damaged run directories.

The rule for every input: exit code 0 with a true result, or exit code 2 with sentences and no traceback, within 10 s
and 1 GiB, and nothing half-written. Inputs are strategies of hypothesis, which draws them, and makes one that breaks
the rule as small as it can; `make fuzz` draws thousands, `make nightly` a few of each kind.

    case.py       one input: the words of a command line, the files it finds, what standard output is
    scene.py      the small real runs, files and data sets that inputs are made from, made once
    words.py      inputs that are hostile command lines          documents.py   … YAML files
    datasets.py   … data sets                                    damage.py      … damaged folders of one or several runs
    child.py      carries an input out in a process of its own, up to where Ray would start
    judge.py      whether the rule holds for what came of it
"""
