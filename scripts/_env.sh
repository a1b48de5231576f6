# shellcheck shell=sh
# What every script here stands on: find a Python, make .venv, install the pinned requirements, install Muster itself.
#
# Sourced, never run. Needs a POSIX shell and Python 3.11 or newer, nothing else. pip is used with the settings of the
# user (mirrors, proxies, certificates): nothing here names a package index. It changes nothing outside .venv, but for
# one thing it says aloud: python3-venv by apt, where Debian or Ubuntu left it out and we may install it.
#
# A script sets `root` (the folder of the repository) before it sources this file, and then calls `muster_setup`.
#
#   MUSTER_PYTHON   the Python to build .venv with (default: the first good one of python3, python3.14 ... python3.11)
#   MUSTER_VENV     where the environment goes (default: .venv in the repository)

set -eu
unset CDPATH PYTHONHOME PYTHONPATH
# Settings that make sense for a person's own pip but would send a package past the virtual environment.
unset PIP_TARGET PIP_PREFIX PIP_ROOT
PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1
export PIP_USER PIP_DISABLE_PIP_VERSION_CHECK

venv=${MUSTER_VENV:-$root/.venv}
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac
EXIT_SETUP=3

say() { printf 'muster: %s\n' "$*" >&2; }

# The first argument is what is wrong; each further one is a line of the remedy, and is a command where it is indented.
refuse() {
  say "$1"
  shift
  for line in "$@"; do printf '        %s\n' "$line" >&2; done
  exit "$EXIT_SETUP"
}

python_version() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null; }
python_is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# Sets `python` to one that is new enough, or refuses and names the best that was found.
find_python() {
  if [ -n "${MUSTER_PYTHON:-}" ]; then
    python=$MUSTER_PYTHON
    python_is_new_enough "$python" && return 0
    found=$(python_version "$python") || found="not a Python that runs"
    refuse "Muster needs Python 3.11 or newer, and MUSTER_PYTHON=$MUSTER_PYTHON is ${found}." \
      "Point MUSTER_PYTHON at a newer one, or unset it."
  fi
  old=""
  for python in python3 python3.14 python3.13 python3.12 python3.11 python; do
    command -v "$python" >/dev/null 2>&1 || continue
    python_is_new_enough "$python" && return 0
    found=$(python_version "$python") || continue
    [ -n "$old" ] || old="$found ($(command -v "$python"))"
  done
  remedy="Debian 12, Ubuntu 24.04, Fedora 37 and later carry one as python3; older systems often have a package python3.11."
  if [ -n "$old" ]; then
    refuse "Muster needs Python 3.11 or newer; the one found here is $old." "$remedy" \
      "If you have another, name it:  MUSTER_PYTHON=/path/to/python3.11 $0"
  fi
  refuse "Muster needs Python 3.11 or newer, and no Python was found on PATH." "$remedy"
}

as_root_prefix() {
  if [ "$(id -u)" -eq 0 ]; then
    echo "env"
  elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    echo "sudo -n env"
  else
    return 1
  fi
}

# apt_install PACKAGE...: as root or with passwordless sudo; false where it may not or cannot.
apt_install() {
  become=$(as_root_prefix) || return 1
  # Lists may be missing (a fresh root) or old (a package that has moved on): then fetch them and try once more.
  for attempt in lists-as-they-are lists-fetched; do
    [ "$attempt" = lists-as-they-are ] || $become apt-get -qq update >&2 || true
    if $become DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
      apt-get -qq -y --no-install-recommends -o DPkg::Lock::Timeout=300 install "$@" >"$apt_log" 2>&1; then
      return 0
    fi
  done
  cat "$apt_log" >&2
  return 1
}

# Debian and Ubuntu ship Python without the part that puts pip into a new environment.
need_ensurepip() {
  "$python" -c 'import ensurepip, venv' 2>/dev/null && return 0
  package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  base=$("$python" -c 'import sys; print(sys.base_prefix)')
  if [ "$base" != /usr ] || ! command -v apt-get >/dev/null 2>&1; then
    refuse "$(command -v "$python") has no ensurepip, so it cannot make a virtual environment." \
      "Install your system's package for Python's venv, or name a complete Python with MUSTER_PYTHON."
  fi
  say "this Python comes without ensurepip; installing $package by apt"
  apt_log=$(mktemp)
  installed=no
  if apt_install "$package"; then installed=yes; fi
  rm -f "$apt_log"
  if [ "$installed" = no ] || ! "$python" -c 'import ensurepip' 2>/dev/null; then
    sudo=""
    [ "$(id -u)" -eq 0 ] || sudo="sudo "
    ! as_root_prefix >/dev/null || refuse "apt could not install $package; its own words stand above. When they are seen to, run" \
      "  ${sudo}apt-get update && ${sudo}apt-get install -y $package" "and start again."
    refuse "could not install $package: that needs root, or sudo without a password. Run this, then start again:" \
      "  ${sudo}apt-get update && ${sudo}apt-get install -y $package"
  fi
}

# A line per thing whose change makes the environment stale.
stamp_text() {
  echo "root $root"
  cksum <"$root/pyproject.toml"
  for file in "$@"; do cksum <"$root/requirements/$file.txt"; done
}

stamp_holds() { # NAME FILE...: this set was installed whole, and from these very files
  stamp="$venv/muster-$1.stamp"
  shift
  [ -f "$stamp" ] && [ "$(stamp_text "$@")" = "$(cat "$stamp")" ]
}

stamp_write() { # NAME FILE...
  stamp="$venv/muster-$1.stamp"
  shift
  stamp_text "$@" >"$stamp.new" && mv "$stamp.new" "$stamp"
}

# pip's words are kept in a file and shown only when it fails: its warnings are about the user's mirrors, not about us.
pip_install() {
  "$venv/bin/python" -m pip install --no-input --progress-bar off "$@" >"$venv/muster-pip.log" 2>&1 && return 0
  cat "$venv/muster-pip.log" >&2
  refuse "pip could not install what Muster needs; its own words stand above." \
    "pip ran with your settings (see: $venv/bin/python -m pip config list). Behind a mirror or a proxy, set them as for any pip:" \
    "PIP_INDEX_URL, PIP_FIND_LINKS, PIP_CERT, HTTPS_PROXY or pip.conf. Then start again."
}

make_venv() {
  find_python
  need_ensurepip
  if [ -e "$venv" ]; then
    [ -f "$venv/pyvenv.cfg" ] || [ -z "$(ls -A "$venv")" ] ||
      refuse "$venv is there, and is no virtual environment." "Remove it, or set MUSTER_VENV to another folder."
    # Elsewhere than in this clone, only what was made for this clone may be thrown away.
    [ "$venv" = "$root/.venv" ] || [ "$(cat "$venv/muster-root" 2>/dev/null)" = "$root" ] ||
      refuse "$venv is an environment that was not made for $root." "Remove it, or set MUSTER_VENV to another folder."
    say "the environment in $venv is old, unfinished or broken; making it afresh"
    rm -rf "$venv"
  fi
  say "making $venv with $("$python" -c 'import sys; print(sys.executable)') $(python_version "$python")"
  "$python" -m venv "$venv" || refuse "python -m venv failed; its own words stand above."
  echo "$root" >"$venv/muster-root"
}

# muster_setup runtime|dev: returns with a complete environment in $venv. A second call is quick; either order works.
muster_setup() {
  if [ -L "$venv" ]; then
    [ -x "$venv/bin/python" ] || refuse "$venv is a link to nowhere." "Remove it, or set MUSTER_VENV to a folder."
    refuse "$venv is a link; an environment of someone else is not touched." "Remove it, or set MUSTER_VENV to a folder."
  fi
  # Two runs at once would build over each other. The kernel lets go of the lock when a killed run ends.
  if command -v flock >/dev/null 2>&1; then
    exec 9<"$root/requirements"
    flock 9
  fi
  if ! "$venv/bin/python" -c '' 2>/dev/null || ! stamp_holds runtime runtime build; then
    make_venv
    say "installing the pinned requirements (first run, or they have changed)"
    pip_install --require-hashes -r "$root/requirements/runtime.txt" -r "$root/requirements/build.txt"
    pip_install --no-index --no-deps --no-build-isolation --editable "$root"
    stamp_write runtime runtime build
  fi
  if [ "$1" = dev ] && ! stamp_holds dev runtime build dev; then
    say "installing the pinned tools for tests"
    pip_install --require-hashes -r "$root/requirements/dev.txt"
    stamp_write dev runtime build dev
  fi
  if command -v flock >/dev/null 2>&1; then exec 9<&-; fi
}
