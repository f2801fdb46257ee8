"""Where the ledger is: what may be written, what comes of it, and that no password is ever shown."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.config_folder import AGENTS, Folder

from pallas.config.database import database_url_problem, masked, urls_of_hosts
from pallas.ledger import database_url_of, open_ledger
from pallas.ledger.ledger_address import address_of
from pallas.model import Fault, FaultType

PASSWORD = "s3cr3t"
SAMPLE = Path(__file__).parents[2] / "sample_project"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "project")


def with_url(url: str) -> str:
    return AGENTS.replace("name: demo\n", f'name: demo\ndatabase_url: "{url}"\n')


def test_a_project_that_says_nothing_has_a_file_of_its_own_in_the_users_state(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    project = folder.agents(AGENTS.replace("demo", "'My Project: 100%?'")).load()
    url = database_url_of(project, {})
    path = address_of(url).path
    assert path is not None
    assert path.parent.parent == tmp_path / "state" / "pallas" / "projects"
    assert path.parent.name.startswith("my-project-100-")
    assert len(path.parent.name) == len("my-project-100-") + 8
    assert path.name == "ledger.sqlite3"
    assert not path.parent.exists()
    # Two folders of one name keep apart.
    other = Folder(tmp_path / "other").agents(AGENTS.replace("demo", "'My Project: 100%?'")).load()
    assert database_url_of(other, {}) != url


def test_the_environment_goes_before_the_file(folder: Folder) -> None:
    project = folder.agents(with_url("sqlite:///data/kept.db")).load()
    assert project.database_url == "sqlite:///data/kept.db"
    assert address_of(database_url_of(project, {})).path == folder.root / "data/kept.db"
    assert database_url_of(project, {"PALLAS_DATABASE_URL": "memory"}) == "memory"
    assert database_url_of(project, {"PALLAS_DATABASE_URL": " "}) == database_url_of(project, {})
    server = f"postgres://me:{PASSWORD}@db.example.com/pallas"
    assert database_url_of(project, {"PALLAS_DATABASE_URL": server}) == server
    with pytest.raises(Fault) as caught:
        database_url_of(project, {"PALLAS_DATABASE_URL": f"mysql://me:{PASSWORD}@db/pallas"})
    assert caught.value.type is FaultType.CONFIG
    assert PASSWORD not in caught.value.message
    assert "mysql://***@db/pallas" in caught.value.message


@pytest.mark.parametrize("name", ["with space", "100%", "a?b#c", "ümlaut"])
def test_any_folder_can_hold_it(tmp_path: Path, name: str) -> None:
    project = Folder(tmp_path / name).agents(with_url("sqlite:///kept.db?synchronous=full")).load()
    address = address_of(database_url_of(project, {}))
    assert address.path == tmp_path / name / "kept.db"
    assert address.full


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory", "memory"),
        ("sqlite:///a.db", "sqlite"),
        ("sqlite:////var/lib/a.db?synchronous=normal", "sqlite"),
        ("postgres://u:p@h/db", "postgresql"),
        ("postgresql://u:p@h:5433/db?sslmode=require&channel_binding=require", "postgresql"),
        ("postgresql+asyncpg://u:p%40x@[::1]:5432/db", "postgresql"),
        ("postgresql:///db?host=%2Frun%2Fpostgresql", "postgresql"),
        ("postgresql://u:p,x@one:5432,two/db?target_session_attrs=read-write", "postgresql"),
        ("postgresql://u@/db?host=one,%2Frun%2Fpostgresql&port=5432,5433", "postgresql"),
    ],
)
def test_what_may_be_written(url: str, kind: str) -> None:
    assert database_url_problem(url) is None
    address = address_of(url)
    assert address.kind == kind
    if kind == "postgresql":
        assert address.dsn.startswith("postgresql:")
        assert "channel_binding" not in address.dsn


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://u:{PASSWORD}@h/db",
        f"postgres://u:{PASSWORD}@h",
        f"postgres://u:{PASSWORD}@h:nan/db",
        f"postgres://u:{PASSWORD}@h:0/db",
        f"postgres://u:{PASSWORD}@h,,i/db",
        f"postgres://u:{PASSWORD}@h:5432,i:nan/db",
        f"postgres://u:{PASSWORD}@/db?host=h,i&port=1,2,3",
        f"postgres://u:{PASSWORD}/x@h/db",
        f"postgres://u:{PASSWORD}?x@h/db",
        f"postgres://u:{PASSWORD}#x@h/db",
        f"postgres://u:{PASSWORD}@x@h/db",
        f"postgres://u:{PASSWORD} x@h/db",
        f"postgres://[::1:{PASSWORD}@h/db",
        f"sqlite://u:{PASSWORD}@h/file",
        "sqlite://data/a.db",
        "sqlite:///",
        "sqlite:///data/",
        "sqlite:///:memory:",
        "sqlite:///a.db?cache=shared",
        "a.db",
        "",
    ],
)
def test_a_bad_url_is_told_at_its_line_and_never_with_its_password(folder: Folder, url: str) -> None:
    problem = database_url_problem(url)
    assert problem
    assert PASSWORD not in problem
    assert PASSWORD not in masked(url)
    with pytest.raises(Fault) as caught:
        address_of(url)
    assert PASSWORD not in caught.value.message
    (mistake,) = [each for each in folder.agents(with_url(url)).found() if each.level == "error"]
    assert (mistake.where.file, mistake.where.line, mistake.key) == ("agents.yaml", 2, "database_url")
    assert PASSWORD not in str(mistake)


def test_the_url_of_a_project_is_not_shown_with_the_project(folder: Folder) -> None:
    folder.environ["DB_PASSWORD"] = PASSWORD
    project = folder.agents(with_url("postgresql://me:${DB_PASSWORD}@h/db")).load()
    assert PASSWORD in project.database_url
    assert PASSWORD not in repr(project)
    assert PASSWORD not in repr(address_of(project.database_url))


def test_every_form_of_a_password_is_masked() -> None:
    for url in (
        f"postgresql://me:{PASSWORD}@h/db",
        f"postgresql://me:a@b/{PASSWORD}@h/db",
        f"postgresql:///db?host=h&user=me&password={PASSWORD}",
        f"postgresql:///db?sslpassword={PASSWORD}&host=h",
    ):
        assert PASSWORD not in masked(url)
    assert masked("postgresql://me:x@h:5433/db") == "postgresql://***@h:5433/db"
    assert "\n" not in masked("memory\n\x1b[2J")


@pytest.mark.parametrize(
    ("url", "each"),
    [
        ("postgresql://u:p,x@one:5432,two/db?a=b", ["u:p,x@one:5432/db?a=b", "u:p,x@two/db?a=b"]),
        ("postgresql://[::1]:5432,[::2]:5433/db", ["[::1]:5432/db", "[::2]:5433/db"]),
        ("postgresql://u@/db?host=one,two&port=7", ["u@/db?host=one&port=7", "u@/db?host=two&port=7"]),
        ("postgresql://u@/db?host=one,two&port=7,8", ["u@/db?host=one&port=7", "u@/db?host=two&port=8"]),
        ("postgresql://u@/db?host=one,two", ["u@/db?host=one", "u@/db?host=two"]),
        ("postgresql://u@one/db", ["u@one/db"]),
    ],
)
def test_a_url_of_several_hosts_is_one_for_each(url: str, each: list[str]) -> None:
    assert urls_of_hosts(url) == [f"postgresql://{rest}" for rest in each]


async def test_a_database_that_cannot_be_had_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("this is no database, and it is long enough to be looked at" * 20)
    (tmp_path / "folder").mkdir()
    for url in (
        f"sqlite:///{tmp_path}/file",
        f"sqlite:///{tmp_path}/folder",
        f"sqlite:///{tmp_path}/file/below.db",
        f"postgresql://me:{PASSWORD}@127.0.0.1:1/db",
    ):
        with pytest.raises(Fault) as caught:
            await open_ledger(url)
        assert caught.value.type is FaultType.CONFIG, url
        assert "database_url" in caught.value.message, caught.value.message
        assert PASSWORD not in caught.value.message
        assert masked(url) in caught.value.message


LOADED = """
import sys
import pallas.ledger
import pallas.config
from pallas.ledger import database_url_of
print([name for name in ("sqlalchemy", "alembic", "asyncpg", "sqlite3") if name in sys.modules])
"""
COMMAND = """
import sys
from pallas.server import main
sys.argv = ["pallas", *{}]
try:
    main()
except SystemExit:
    pass
print([name for name in ("sqlalchemy", "alembic", "asyncpg") if name in sys.modules])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        LOADED,
        COMMAND.format(("--help",)),
        COMMAND.format(("check", "--project", str(SAMPLE))),
    ],
    ids=["import", "help", "check"],
)
def test_the_database_library_is_loaded_when_a_ledger_is_opened_and_not_before(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
