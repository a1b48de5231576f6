"""The shell text that the dnf backend's texts have in common: how dnf and rpm are asked, waited for and read. Runs nothing.

Written against dnf 4 (RHEL 8 to 10 and their like, Amazon Linux 2023). Paths begin with `$MUSTER_ROOT` as everywhere; `own` is a cache of
Muster's own, so that the node's timers neither clean nor lock what a change needs.
"""

LOCK_WAIT_S = 600
"""How long a change waits for another holder of rpm's database; an automatic update of a full system takes minutes, and is never killed."""

LOOK_WAIT_S = 60
"""How long a preflight waits for it: its own deadline is short, and a node that updates itself is better named than waited for."""

CANNOT, NO_WAY_BACK, HELD = 3, 4, 5
"""Exit statuses: what was asked for cannot be done; what is there now could not be had again; somebody holds rpm's database."""

COMMON = """\
LC_ALL=C SYSTEMD_OFFLINE=1 PATH=$PATH:/usr/sbin:/sbin
export LC_ALL SYSTEMD_OFFLINE PATH
own=$MUSTER_ROOT/var/lib/muster/node/dnf
cache=$own/cache
failed=$MUSTER_ROOT/var/lib/muster/node/scriptlets
form='%{NAME}=%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\\n'
plain() { sed 's/=0:/=/' | sort -u; }
there() { rpm -q --qf "$form" "$@" 2>/dev/null | grep = | plain; }
"""
"""`SYSTEMD_OFFLINE`: systemctl then starts and restarts nothing, so that no package's script runs a daemon against the module that is still
loaded."""

READABLE = f"""\
said=$(rpm -q gpg-pubkey 2>&1 >/dev/null) || :
case $said in *error:*)
  echo "E: rpm's database cannot be read: $(printf '%s\\n' "$said" | sed -n 's/^error: //p' | head -n 1); nothing was changed"
  exit {CANNOT} ;;
esac
"""
"""A damaged database is named and left alone: to build it anew (`rpm --rebuilddb`) can lose packages, and is for a person to decide."""

WAIT = f"""\
holder() {{ # the process that holds rpm's database, if any
  for lock in "$MUSTER_ROOT"/var/lib/rpm/.rpm.lock "$MUSTER_ROOT"/usr/lib/sysimage/rpm/.rpm.lock; do
    [ -e "$lock" ] || continue
    inode=$(stat -L -c %i "$lock")
    awk -v inode="$inode" '$2 != "->" && $4 == "WRITE" && $6 ~ (":" inode "$") {{ print $5 }}' /proc/locks
  done
  pid=$(cat "$MUSTER_ROOT/var/lib/dnf/rpmdb_lock.pid" 2>/dev/null)
  if [ -n "$pid" ] && [ -d "/proc/$pid" ]; then echo "$pid"; fi
}}
wait_for_rpm() {{ # seconds
  tries=0
  while pid=$(holder | head -n 1) && [ -n "$pid" ]; do
    tries=$((tries + 1))
    [ $tries -le "$1" ] || {{
      echo "E: rpm's database is held by process $pid ($(tr '\\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | cut -c1-80)) for over $1 s"
      exit {HELD}
    }}
    sleep 1
  done
}}
"""
"""dnf and rpm wait by themselves, and for ever; this wait has an end and a name for the holder."""

OPTIONS = (
    "--setopt=install_weak_deps=False --setopt='*.gpgcheck=1' --setopt=localpkg_gpgcheck=1 --setopt=strict=1 "
    "--setopt=clean_requirements_on_remove=False --setopt=keepcache=1 --setopt=color=never --disableexcludes=all --allowerasing --comment=muster"
)
"""Signatures are always checked, whatever a repository's own settings say. The site's excludes are how it holds packages, and are lifted for
the change alone; that nothing else moves was proved before."""

ASK = f"""\
lock_plugin=
if [ -e "$MUSTER_ROOT/etc/dnf/plugins/versionlock.conf" ]; then lock_plugin=--disableplugin=versionlock; fi
ask_dnf() {{ dnf "$@" {OPTIONS} --setopt=cachedir="$cache" $lock_plugin </dev/null; }} # the verb first: dnf's history shows no more of a command
reason() {{ # the words of dnf in this file that say why, in one line
  awk '
    /Failing package/ && failing == "" {{ failing = " " $0 }}
    /not signed|[Pp]ublic key for|not correct|SIGNATURES NOT OK|DIGESTS NOT OK/ && sign == "" {{ sign = $0 }}
    /^ +- (Curl|Status) / && curl == "" {{ curl = $0 }}
    /^Error/ || (/^ *No match for argument/ && !on) {{ on = 1 }}
    on && n < 5 {{
      sub(/^ +/, ""); sub(/^- /, ""); sub(/^Problem( [0-9]+)?: conflicting requests/, "")
      if ($0 != "" && $0 !~ /^Error: *$/) {{ said = said (said == "" ? "" : " ") $0; n++ }}
    }}
    END {{ print (sign != "" ? sign failing : said (curl != "" ? " (" curl ")" : "")) }}' "$1" | tr -s ' ' | sed 's/^Error: //' | cut -c1-260
}}
"""
"""The locks of `dnf versionlock` stay in their file during the change (a power cut loses none) and are passed over by it."""

SIGNED = f"""\
check_files() {{ # files; sets bad to the first that is not whole and signed by a key that the node trusts
  bad=$(rpmkeys --checksig "$@" 2>&1 | grep -v ': digests signatures OK$' | grep -v '^warning:' | head -n 1)
  [ -n "$bad" ] || return 0
  bad="${{bad##*/}}"
  return {CANNOT}
}}
"""

LOCKS = """\
conf=$MUSTER_ROOT/etc/dnf/plugins/versionlock.conf
list=$(sed -n 's/^locklist *= *//p' "$conf" 2>/dev/null)
name_of='function name_of(line) { sub(/[[:space:]].*/, "", line); sub(/-[^-]*-[^-]*$/, "", line); return line }
  function ours(line) { return line !~ /^[#!]/ && (index(names, " " name_of(line) " ") || index(names, " " line " ")) }'
locked() { # names, file: the locks that it has of these packages
  awk -v names=" $1 " "$name_of"' ours($0)' "$2" 2>/dev/null
}
relock() { # names; standard input: the locks that these packages get in place of their own. Locks of others stay.
  if [ -z "$list" ]; then echo 'there is no versionlock plugin on this node: nothing holds the packages'; return 0; fi
  file=$MUSTER_ROOT$list
  [ -e "$file" ] || : >"$file" || return 1
  { sed 's/^/+/'; sed 's/^/=/' "$file"; } | awk -v names=" $1 " "$name_of"'
    { line = substr($0, 2) }
    /^[+]/ { add = add line "\\n"; next }
    line ~ /^# Added lock/ || line ~ /^[[:space:]]*$/ { held = held line "\\n"; next }
    ours(line) { held = ""; next }
    { printf "%s%s\\n", held, line; held = "" }
    END { printf "%s%s", held, add }' >"$file.muster" &&
    chmod 644 "$file.muster" && mv -f "$file.muster" "$file" || { echo "E: the version locks could not be written to $list"; return 1; }
}
"""
"""The form is that of the plugin's own list (`NAME-EPOCH:VERSION-RELEASE.*`); its command would load every repository to write the same line."""

STREAMS = """\
stream_of() { sed -n 's/^stream *= *//p' "$MUSTER_ROOT/etc/dnf/modules.d/$1.module" 2>/dev/null; }
to_stream() { # module, stream
  [ "$(stream_of "$1")" != "$2" ] || return 0
  ask_dnf module reset "$1" -y -C >"$own/said" 2>&1 &&
    ask_dnf module enable "$1:$2" -y -C >>"$own/said" 2>&1 && [ "$(stream_of "$1")" = "$2" ] || {
    echo "E: the module stream $1:$2 cannot be enabled: $(reason "$own/said")"
    return 1
  }
}
"""
"""A stream hides the packages of the module's other streams, so it changes before the packages do."""

SCRIPTLETS = """\
scriptlets() { # what dnf said: names the package scripts that failed, and remembers those whose packages are installed all the same
  rm -f "$failed"
  sed -n 's/^[a-z]*: \\(%[a-z]*\\)(\\(.*\\)) scriptlet failed, exit status \\([0-9]*\\).*/\\1 \\2 \\3/p' "$1" >"$own/scripts"
  [ -s "$own/scripts" ] || return 0
  while read -r script nevra status; do
    echo "E: the script $script of $nevra failed with exit status $status"
    rpm -q --qf '%{NAME} %|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE} %{INSTALLTIME}\\n' "$(echo "$nevra" | sed 's/-[0-9]*:/-/')" 2>/dev/null |
      grep -v ' is not installed' >>"$failed"
  done <"$own/scripts"
  return 1
}
"""
"""rpm takes a package whose own script failed for installed, and dnf ends well: only its output tells. The list lies where the facts read it."""

WOULD = """\
would() { # dnf's log, names that may go, names that may move, as patterns: says what else would go or move
  listed() { sed -n "s/.*---> Package \\([^ ]*\\)[.][^. ]* [^ ]* will be \\($1\\)\\$/\\1/p" "$log"; }
  log=$1
  others=$(listed 'erased\\|obsoleted' | grep -vxE "$2" | sort -u | tr '\\n' ' ')
  [ -z "$others" ] || { echo "remove packages: $others"; return; }
  others=$(listed 'upgraded\\|an upgrade\\|downgraded\\|a downgrade\\|reinstalled' | grep -vxE "$3" | sort -u | tr '\\n' ' ')
  [ -z "$others" ] || echo "also move packages: $others"
}
"""
"""The table that dnf shows to people breaks long names; its log has each package on a line, the same in every language."""

KEPT = """\
kept() { # NAME=VERSION: a file of that version, whole and signed, that an earlier change left on the node
  plain=${1#*=}
  for file in "$MUSTER_ROOT"/var/lib/muster/node/restore/*/"${1%%=*}-${plain#*:}".*.rpm "$own/new/${1%%=*}-${plain#*:}".*.rpm; do
    [ -r "$file" ] && [ "$(rpm -qp --qf "$form" "$file" 2>/dev/null | sed 's/=0:/=/')" = "$1" ] && check_files "$file" && echo "$file" && return
  done
}
"""

KERNEL_LOCKS = """\
set -- kernel kernel-core 'kernel-modules*' 'kernel-devel*' 'kernel-uek*'
if [ $rc = 0 ] && [ -n "$list" ] && [ -n "$(rpm -qa "$@")" ]; then
  rpm -qa --qf '%{NAME}-%|EPOCH?{%{EPOCH}}:{0}|:%{VERSION}-%{RELEASE}.*\\n' "$@" | sort -u | relock "$(rpm -qa --qf '%{NAME} ' "$@")" || rc=1
fi
"""
"""Every kernel that is installed is locked as it is: none comes, and none of them is in the way of another."""

FITS = f"""\
[ ! -e "$MUSTER_ROOT/run/ostree-booted" ] || {{
  echo "this node's root is an image (ostree): its driver changes with the image, not by dnf"
  exit {CANNOT}
}}
case $(readlink -f "$(command -v dnf)") in
  '') echo 'dnf is not on this node'; exit {CANNOT} ;;
  */dnf5) echo 'this node has dnf 5, which Muster does not know yet: change its driver by hand'; exit {CANNOT} ;;
esac
"""

SCRATCH = """\
scratch=${MUSTER_SCRATCH:-$(mktemp -d)} || exit 1
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch" || exit 1
cache=$scratch/cache
private() {
  ask_dnf "$@" --setopt=logdir="$scratch" --setopt=logfilelevel=9 --setopt=persistdir="$scratch/persist" --setopt=skip_if_unavailable=1 \\
    --disableplugin=generate_completion_cache
}
refuse() { echo "$2"; exit "$1"; }
unread() { # a repository that could not be read, in words, if there is one
  awk '{ sub(/^[0-9T:+-]+ [A-Z]+ /, "") }
       /^ +- (Curl|Status) / && curl == "" { sub(/^ +- /, ""); curl = " (" $0 ")" }
       /^Error: Failed to download metadata/ && said == "" { said = substr($0, 8) }
       END { if (said != "") print said (index(said, substr(curl, 3, 30)) ? "" : curl) }' "$scratch/dnf.log" 2>/dev/null | cut -c1-260
}
"""
"""Lists, logs, history and locks of a question lie in a scratch folder, so that preflight changes nothing on the node, not even its cache."""

SPACE = f"""\
place=$MUSTER_ROOT/var/lib/muster
[ -d "$place" ] || place=$MUSTER_ROOT/var/lib
free=$(df -Pk "$place/." | sed -n '2s/^[^ ]* *[0-9]* *[0-9]* *\\([0-9]*\\) .*/\\1/p')
[ -z "$free" ] || [ "$free" -ge "$need" ] ||
  refuse {CANNOT} "$place has $free KiB free; the packages and the way back need $need KiB to be fetched"
"""
"""dnf counts what it installs before it begins, but not what it downloads."""

DAEMONS = """\
if [ -d "$MUSTER_ROOT/run/systemd/system" ]; then SYSTEMD_OFFLINE=0 systemctl daemon-reload || :; fi
"""
"""New unit files are read, as the packages' scripts would have had it; nothing is started."""

DAMAGED = """\
  # Files of a package that was cut off in mid-unpack are another version's, while rpm's database says that the old one is whole.
  now=$(there "$name")
  if ! printf '%s\\n' "$wanted" | grep -qxF "$now" || [ "$(printf '%s\\n' "$now" | grep -c .)" != 1 ] ||
    grep -qF "${now%%=*} ${now#*=} " "$failed" 2>/dev/null ||
    rpm -V --nodeps --noscripts --nomtime --nomode --nouser --nogroup --nocaps "$name" | grep -qv '^[^ ]* *[cg] '; then
    set -- "$@" "$keep/${name%.i[3-6]86}"-[0-9]*.rpm
  fi
"""

LAY_DOWN = """\
if [ $# != 0 ]; then
  echo "rpm lays down again: $*"
  rpm -U --oldpackage --replacepkgs --replacefiles "$@" >"$own/laid" 2>&1 || echo "E: rpm: $(grep -v '^Preparing' "$own/laid" | head -n 1)"
  cat "$own/laid" >>"$own/said"
fi
"""
"""dnf gives up on a set that a power cut left twice in the database; rpm takes the same checked files as they are."""

RESTORE_ETC = """\
if [ -d "$state/etc" ]; then
  cp -a "$state/etc/." "$MUSTER_ROOT/etc/"
  for left in "$MUSTER_ROOT"/etc/modprobe.d/*.rpmnew "$MUSTER_ROOT"/etc/modprobe.d/*.rpmsave; do
    [ ! -e "$left" ] || [ -e "$state/${left#"$MUSTER_ROOT/"}" ] || rm -f "$left"
  done
fi
"""
"""Configuration as it was, without what the new packages laid beside a changed file. Before the packages too: their stream comes first."""
