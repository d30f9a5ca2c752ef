#!/bin/sh
# Prints where a Chromium lies that the page's tests can drive. Where there is none, Debian's is installed if that
# may be done; if not, one message says what to do, and the exit code is 1. `--look` installs nothing.
set -u

found() {
  if [ -n "${LNTRUST_CHROMIUM:-}" ]; then
    [ -x "$LNTRUST_CHROMIUM" ] && echo "$LNTRUST_CHROMIUM"
    return
  fi
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" && return
  done
  for place in "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" \
               "/Applications/Chromium.app/Contents/MacOS/Chromium"; do
    [ -x "$place" ] && echo "$place" && return
  done
  return 1
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
  echo "no Chromium here; installing it with apt-get" >&2
  install="$as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends chromium"
  $install >&2 && return
  $as_root apt-get update --quiet >&2 && $install >&2
}

found && exit 0
[ "${1:-}" != --look ] && [ -z "${LNTRUST_CHROMIUM:-}" ] && installed && found && exit 0
echo "error: the page's tests need a Chromium, and there is none: install one (apt-get install chromium), or say" \
  "where it is in LNTRUST_CHROMIUM${LNTRUST_CHROMIUM:+ (now $LNTRUST_CHROMIUM, which is no program)}" >&2
exit 1
