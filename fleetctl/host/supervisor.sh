# Runs one program on a host for a controller that may vanish at any moment.
#
# Parameters: A B (the two halves of this call's mark), Q R (stdin is Q blocks of 64 KiB
# and R bytes), D (seconds after which the host itself gives up), then the program.
#
# stdin:   "go A-B\n", the program's stdin, "A-B\n", and then nothing until the controller
#          is done: end of file means that the controller gave up or is gone.
# stdout:  (noise of start-up files) "A-B hello\n" "A-B GROUP\n" (the program) "A-B CODE gone|left\n"
# stderr:  (noise of start-up files) "A-B\n" (the program) "A-B\n"
#
# The halves are joined only when printed, so a shell that traces its commands prints no mark.
# POSIX sh plus setsid(1); lines that are only a comment are not sent.

# The feeder hands stdin over, then watches the connection. It never lets the program see an end
# of file that the controller did not mean: a cut stream is reported, not passed on.
FEED='echo "f $$" >&7
fed=1
if [ "$3" -gt 0 ]; then dd bs=65536 count="$3" iflag=fullblock 2>/dev/null || fed=; fi
if [ "$fed" ] && [ "$4" -gt 0 ]; then dd bs="$4" count=1 iflag=fullblock 2>/dev/null || fed=; fi
if [ "$fed" ]; then IFS= read -r x && [ "$x" = "$1-$2" ] || fed=; fi
if [ "$fed" ]; then exec >/dev/null; IFS= read -r x; else cat >/dev/null; fi
echo lost >&7
exec sleep 2147483'

# The program's own process, first of its session and group, before it becomes the program.
PRE='set +x
echo "g $$" >&7
printf "%s-%s %s\n" "$1" "$2" $$
printf "%s-%s\n" "$1" "$2" >&2
shift 2
exec "$@" 7>&-'

# The host's own limit, in a session of its own so that it can be ended with the sleep inside it.
# SIGKILL and no trap: signals that were ignored when a shell started can't be trapped.
# Without its supervisor the group may be somebody else's by then.
LIMIT='sleep "$2"
kill -0 "$3" || exit
kill -TERM "-$1"
sleep 2
kill -KILL "-$1"'

a=$1 b=$2 q=$3 r=$4 d=$5
shift 5
exec 3<&0 5>&2 6>&1 </dev/null 2>/dev/null
if ! command -v setsid >/dev/null; then printf '%s-%s no setsid\n' "$a" "$b" >&6; exit 1; fi
printf '%s-%s hello\n' "$a" "$b" >&6
# Nothing runs without this line: a call given up while the login shell was slow never starts.
IFS= read -r x <&3
[ "$x" = "go $a-$b" ] || exit 1

# Members that are only waiting to be reaped don't count: in containers nobody may reap them.
alive() {
  kill -0 "-$1" || return 1
  for s in /proc/[0-9]*/stat; do
    IFS= read -r x <"$s" || continue
    set -- "$1" ${x##*) }
    if [ "$4" = "$1" ]; then case $2 in Z | X) ;; *) return 0 ;; esac fi
  done
  return 1
}
end() {
  kill -TERM "-$1"
  i=0
  while alive "$1"; do
    i=$((i + 1))
    if [ $i -eq 15 ]; then kill -KILL "-$1"; fi
    if [ $i -gt 45 ]; then left=left; return; fi
    sleep 0.1
  done
}
{
  /bin/sh -c "$FEED" sh "$a" "$b" "$q" "$r" <&3 3<&- 5>&- 6>&- | {
    # In a subshell, so that this shell never holds the program's stderr: it would report signals
    # there, and die of a broken pipe instead of telling the end.
    (exec setsid /bin/sh -c "$PRE" sh "$a" "$b" "$@" >&6 2>&5 3<&- 5>&- 6>&-)
    echo "rc $?" >&7
  }
} 7>&1 | {
  exec 3<&-
  f= g= z= lost= rc= left=gone
  while read -r k v; do
    case $k in
    f) f=$v ;;
    g)
      g=$v
      setsid /bin/sh -c "$LIMIT" sh "$g" "$d" $$ >/dev/null 5>&- 6>&- &
      z=$!
      if [ "$lost" ]; then end "$g"; fi
      ;;
    lost)
      lost=1
      if [ "$g" ]; then end "$g"; fi
      ;;
    rc)
      rc=$v
      if [ "$g" ] && alive "$g"; then end "$g"; fi
      ;;
    esac
    if [ "$rc" ] && [ "$f" ]; then break; fi
  done
  # Helpers first: once the marks are out, nobody may be left to read, and printing may kill us.
  kill -KILL "$f"
  if [ "$z" ]; then kill -KILL "-$z"; kill -KILL "$z"; fi
  printf '%s-%s %s %s\n' "$a" "$b" "$rc" "$left" >&6
  printf '%s-%s\n' "$a" "$b" >&5
  wait
}
