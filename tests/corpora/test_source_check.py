"""The check of addresses, against a local server."""

from pathlib import Path

import pytest
from file_server import CONTENT, LICENSED, serving, source

from ode_transformer.cli.command import main
from ode_transformer.corpora import sources as source_list
from ode_transformer.corpora.source_check import check_sources
from ode_transformer.corpora.sources import Source


def test_each_address_is_asked_by_head_and_its_answer_is_a_row() -> None:
    with serving() as server:
        server.files |= {"a.tgz": CONTENT, "short": CONTENT[:9], "page": CONTENT}
        server.types["page"] = "text/html; charset=utf-8"
        dead = f"http://127.0.0.1:{server.port + 1 if server.port < 65_535 else 1}/a.tgz"
        sources = {
            "complete": source(server, "missing", "a.tgz"),
            "broken": source(server, "short", "page", "missing"),
            "unreachable": Source(file="b", urls=[dead], licence="free"),
            "within": Source(
                file="c", urls=[server.url("missing")], licence="free", copies=[{"source": "complete", "member": "c"}]
            ),
            "licensed": LICENSED,
        }
        table, unavailable = check_sources(sources)
        assert {method for method, _, _ in server.requests} == {"HEAD"}
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert [row[0].strip("`") for row in rows] == ["complete"] * 2 + ["broken"] * 3 + [
        "unreachable",
        "within",
        "licensed",
    ]
    assert [row[2] for row in rows[:5]] == [
        "404 Not Found",
        "200 OK",
        "200 OK, 100,000 bytes published",
        "200 OK, a page instead of the file",
        "404 Not Found",
    ]
    assert rows[1][3] == "100,000"
    assert "refused" in rows[5][2]
    assert rows[7][1] == "on request"
    assert unavailable == ["broken", "unreachable"]


@pytest.mark.parametrize(("file", "status"), [("good", 0), ("bad", 1)])
def test_the_command_prints_the_table(tmp_path: Path, monkeypatch, capsys, file: str, status: int) -> None:
    with serving() as server:
        server.files["good"] = CONTENT
        path = tmp_path / "sources.yaml"
        path.write_text(f"multi30k: {{file: a, urls: ['{server.url(file)}'], licence: free}}\n")
        monkeypatch.setattr(source_list, "SOURCES_FILE", path)
        assert main(["prepare", "--check-sources"]) == status
    printed = capsys.readouterr().out
    assert "| `multi30k` |" in printed
    assert ("no address gives the file of multi30k" in printed) == (status == 1)


def test_wheels_have_no_raw_files(capsys) -> None:
    assert main(["prepare", "quickstart_text", "--check-sources"]) == 0
    assert capsys.readouterr().out.startswith("no raw files")


def test_prepare_alone_asks_for_a_recipe(capsys) -> None:
    assert main(["prepare"]) == 2
    assert "RECIPE is missing" in capsys.readouterr().err
