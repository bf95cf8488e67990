"""Sources of data: Parquet, saved datasets, drawn tasks, fields within fields, chats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rpeg.errors import InputError
from rpeg.job.preferences import read_preferences
from rpeg.job.records import Record, read_records

ROWS = [{"prompt": f"{n} + 1 =", "answer": str(n + 1)} for n in range(3)]
CHAT = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 1 ="}]


def write_lines(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def plain(records: tuple[Record, ...]) -> list[dict[str, str]]:
    return [{"prompt": record.prompt, "answer": record.answer} for record in records]


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    assert plain(read_records(str(tmp_path / "a.parquet"))) == ROWS
    with pytest.raises(InputError, match=r"a.parquet:1: has no field 'promt'. Did you mean 'prompt'"):
        read_records(str(tmp_path / "a.parquet"), "promt")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 no, it is not")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_records(str(tmp_path / "b.parquet"))


def test_as_verl_writes_it(tmp_path: Path) -> None:
    """A chat as the prompt, the answer inside an object: columns of nested Parquet."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"prompt": CHAT, "reward_model": {"style": "rule", "ground_truth": "2"}}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    (record,) = read_records(str(tmp_path / "a.parquet"), "prompt", "reward_model.ground_truth")
    assert record == Record(0, "1 + 1 =", "2", (("system", "Add."), ("user", "1 + 1 =")))


def test_saved_datasets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    whole = datasets.Dataset.from_list(ROWS)
    whole.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"train": whole, "test": whole.select([2])}).save_to_disk(str(tmp_path / "split"))
    assert plain(read_records(str(tmp_path / "one"))) == ROWS
    assert plain(read_records(str(tmp_path / "split"))) == ROWS
    assert plain(read_records(f"{tmp_path / 'split'}#test")) == ROWS[2:]
    with pytest.raises(InputError, match=r"no split 'tests'. Did you mean 'test'"):
        read_records(f"{tmp_path / 'split'}#tests")
    with pytest.raises(InputError, match="without splits"):
        read_records(f"{tmp_path / 'one'}#train")
    with pytest.raises(InputError, match="no dataset was saved there"):
        read_records(str(tmp_path))


def test_a_dataset_that_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")

    def offline(*_: object, **__: object) -> None:
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(InputError, match=r"dataset a/b \(test\) is not in the cache, and cannot be fetched"):
        read_records("hf:a/b#test")
    with pytest.raises(InputError, match="must be hf:ORG/NAME"):
        read_records("hf:a")


def test_tasks_are_drawn_the_same_each_time() -> None:
    pytest.importorskip("reasoning_gym")
    path = "reasoning-gym:chain_sum?size=4&seed=7&max_terms=2"
    records = read_records(path)
    assert len(records) == 4
    assert records == read_records(path)
    entry = json.loads(records[0].answer)
    assert (entry["question"], entry["metadata"]["source_dataset"]) == (records[0].prompt, "chain_sum")
    with pytest.raises(InputError, match="reasoning-gym:chain_sun: cannot be drawn"):
        read_records("reasoning-gym:chain_sun")
    with pytest.raises(InputError, match="cannot be drawn"):
        read_records("reasoning-gym:chain_sum?colour=red")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=name.partition(".")[0])

    monkeypatch.setattr("rpeg.job.sources.importlib.import_module", missing)
    (tmp_path / "a.parquet").touch()
    with pytest.raises(
        InputError, match=r"needs pyarrow, which is not installed: pip install 'rpeg\[data\]'"
    ):
        read_records(str(tmp_path / "a.parquet"))
    with pytest.raises(InputError, match=r"needs reasoning-gym.*rpeg\[rewards\]"):
        read_records("reasoning-gym:chain_sum")


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ([], "is an empty chat"),
        (["hello"], "holds 'hello', a chat message has role and content"),
        ([{"role": "user"}], "a chat message has role and content"),
        ([{"role": "user", "content": 3}], "field 'prompt.content' is 3, text is needed"),
        (None, "field 'prompt' is None, text is needed"),
    ],
)
def test_what_is_no_prompt(prompt: object, says: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"prompt": prompt, "answer": "x"}])
    with pytest.raises(InputError, match=says):
        read_records(path)


def test_a_field_with_a_dot_in_its_name_comes_first(tmp_path: Path) -> None:
    row = {"a.b": "by name", "a": {"b": "by path", "c": 3}, "answer": {"x": [1]}}
    path = write_lines(tmp_path / "a.jsonl", [row])
    assert read_records(path, "a.b")[0].prompt == "by name"
    assert read_records(path, "a.b", "a.c")[0].answer == "3"
    assert read_records(path, "a.b")[0].answer == '{"x": [1]}'
    with pytest.raises(InputError, match=r"has no field 'a\.d'"):
        read_records(path, "a.d")


def test_pairs(tmp_path: Path) -> None:
    said = {"role": "assistant", "content": "2"}
    rows = [
        {"prompt": "p", "chosen": "c", "rejected": "r", "by": 2},
        {"chosen": [*CHAT, said], "rejected": [*CHAT, said], "by": 0},
    ]
    found = read_preferences(write_lines(tmp_path / "a.jsonl", rows), margin="by")
    assert (found[0].prompt, found[0].chosen, found[0].margin) == ("p", "c", 2.0)
    assert (found[1].prompt, found[1].chosen[-1]) == ((), ("assistant", "2"))
    with pytest.raises(InputError, match="field 'by' is -1, a number of at least 0"):
        read_preferences(write_lines(tmp_path / "b.jsonl", [{**rows[0], "by": -1}]), margin="by")
    with pytest.raises(InputError, match="has no field 'rejected'"):
        read_preferences(write_lines(tmp_path / "c.jsonl", [{"prompt": "p", "chosen": "c"}]))
