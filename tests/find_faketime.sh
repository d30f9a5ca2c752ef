#!/bin/sh
# Prints where faketime lies, which shows a program another clock. Where there is none, Debian's is installed if
# that may be done; if not, one message says what to do, and the exit code is 1. `--look` installs nothing.
set -u

found() {
  command -v faketime
}

installed() {
  command -v apt-get >/dev/null || return 1
  if [ "$(id -u)" = 0 ]; then
    as_root=""
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root="sudo -n"
  else
    return 1
  fi
  echo "no faketime here; installing it with apt-get" >&2
  install="$as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends faketime"
  $install >&2 && return
  $as_root apt-get update --quiet >&2 && $install >&2
}

found && exit 0
[ "${1:-}" != --look ] && installed && found && exit 0
echo "error: tests of a wrong clock need faketime, and there is none: install it (apt-get install faketime)" >&2
exit 1
