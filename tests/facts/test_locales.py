"""What was captured on a machine that speaks another language says the same; and our own look speaks none."""

import subprocess
from collections.abc import Mapping

import pytest

from muster.discovery import discover, one
from muster.facts import captures
from muster.model.capture import Capture, CaptureSpec
from muster.model.fact import FactSpec, FactValue, RawOutput
from muster.node.collect import parse_frames, render

READERS = tuple(
    reader for reader in discover("muster.facts.captures", "READER").values() if isinstance(reader, CaptureSpec)
)
LOST = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=a, GPU has fallen off the bus."


def read(text: str, encoding: str = "utf-8") -> tuple[str, Mapping[str, FactValue]]:
    found = captures.read(text.encode(encoding, "replace"), READERS, kind=None, cut=False)
    assert isinstance(found, Capture), found
    return found.kind, found.facts


# The day and month of `dmesg -T` and of journalctl's short form, as their locales write them.
STAMPS = (
    ("[Mo Nov 30 12:00:00 2026] ", "Mo Nov 30 12:00:00 2026"),
    ("[Sa Mär  7 12:00:00 2026] ", "Sa Mär  7 12:00:00 2026"),
    ("[月 11月 30 12:00:00 2026] ", "月 11月 30 12:00:00 2026"),
    ("[mer. déc.  2 12:00:00 2026] ", "mer. déc.  2 12:00:00 2026"),
    ("[Пн ноя 30 12:00:00 2026] ", "Пн ноя 30 12:00:00 2026"),
    ("Dez 01 12:00:00 gpu01 kernel: ", "Dez 01 12:00:00"),
    ("März 07 12:00:00 gpu01 kernel: ", "März 07 12:00:00"),
    ("12月 01 12:00:00 gpu01 kernel: ", "12月 01 12:00:00"),
)


@pytest.mark.parametrize(("stamp", "at"), STAMPS)
def test_a_kernel_line_with_a_date_in_another_language_is_the_same_event(stamp: str, at: str) -> None:
    kind, facts = read(f"{stamp}{LOST}\n{stamp}usb 1-1: neues Gerät\n")
    assert kind == "kernel_log"
    assert (facts["kernel_log.count[xid]"], facts["xid[0000:9b:00/79].first"], facts["event[0000001].at"]) == (
        1,
        at,
        at,
    )


def test_a_log_in_an_old_japanese_or_german_encoding_still_gives_its_events() -> None:
    for encoding, stamp in (("euc_jp", "[月 11月 30 12:00:00 2026] "), ("latin-1", "[Sa Mär  7 12:00:00 2026] ")):
        _, facts = read(f"{stamp}{LOST}\n" * 3, encoding)
        assert facts["kernel_log.count[xid]"] == 3


GERMAN = """\
Gewünscht=Unbekannt/Installieren/R=Entfernen/P=Vollständig Löschen/Halten
| Status=Nicht/Installiert/Config/U=Entpackt/halb konFiguriert/
         Halb installiert/Trigger erWartet/Trigger anhängig
|/ Fehler?=(kein)/R=Neuinstallation notwendig (Status, Fehler: GROSS=schlecht)
||/ Name               Version        Architektur  Beschreibung
+++-==================-==============-============-=================================
hi  libcuda1:amd64     570.195.03-1   amd64        NVIDIA CUDA Treiber-Bibliothek
iF  nvidia-kernel-dkms 570.195.03-1   amd64        Quellen für NVIDIA-Module
"""
JAPANESE = """\
要望=(U)不明/(I)インストール/(R)削除/(P)完全削除/(H)保持
| 状態=(N)無/(I)インストール済/(C)設定/(U)展開/(F)設定失敗/(H)半インストール/(W)トリガ待ち/(T)トリガ保留
|/ エラー?=(空欄)無/(R)要再インストール (状態,エラーの大文字=異常)
||/ 名前               バージョン     アーキテクチャ 説明
+++-==================-==============-============-=================================
hi  libcuda1:amd64     570.195.03-1   amd64        NVIDIA CUDA ドライバーライブラリ
iF  nvidia-kernel-dkms 570.195.03-1   amd64        NVIDIA モジュール
"""


@pytest.mark.parametrize("listed", [GERMAN, JAPANESE])
def test_a_package_list_in_another_language_is_recognised_and_read(listed: str) -> None:
    kind, facts = read(listed)
    assert kind == "dpkg_list"
    assert facts["package[nvidia-kernel-dkms].state"] == "half-configured"
    assert facts["package[libcuda1].version"] == "570.195.03-1"


def test_apts_own_log_is_read_whatever_the_language_of_who_worked() -> None:
    spec = one("muster.facts", "transactions", "FACT")
    assert isinstance(spec, FactSpec)
    row = "apt\tapt/history.log:9\t2026-11-03 06:00:00\t\tapt install größer\tjörg (1000)\tUpgrade: libcuda1:amd64 (1-1, 2-1);"
    found = spec.parse(RawOutput(0, f"zone +0100\nread apt/history.log\n{row}\n".encode()))
    assert found["transaction[2026-11-03T06:00:00].by"] == "jörg (1000)"


@pytest.mark.parametrize("language", ["de_DE.UTF-8", "ja_JP.eucJP", "tr_TR.UTF-8", "nonsense"])
def test_our_look_speaks_no_language_whatever_the_node_speaks(language: str) -> None:
    text = render(
        [("words", "echo $LC_ALL; date +%b -d 2026-03-07; ls /nowhere 2>&1; locale decimal_point", 5, 4096)],
        "abcdefgh1234",
    )
    env = {"PATH": "/usr/bin:/bin", "LANG": language, "LC_ALL": language, "LANGUAGE": "de", "LC_TIME": language}
    done = subprocess.run(["sh", "-s"], input=text.encode(), capture_output=True, env=env)
    said = parse_frames(done.stdout, "abcdefgh1234")["words"].stdout.decode().splitlines()
    assert said[0] == "C"
    assert said[1] == "Mar"
    assert "No such file" in said[2]
    assert said[3] == "."
