#!/usr/bin/busybox sh
# Serves one virtio port: a line "NUMBER base64(command)" in; the command's output, then a line "@@END NUMBER STATUS" out.
exec 3<>"$1" || exit 1
cd /root
while read -r number text <&3; do
    echo "$text" | base64 -d >/tmp/command.$number
    setsid /usr/bin/dash /tmp/command.$number </dev/null 3>&- 2>&1 | cat >&3
    # The status of the first part of the pipe is lost in this shell: the command leaves it in a file.
    printf '\n@@END %s %s\n' "$number" "$(cat /tmp/status.$number 2>/dev/null || echo 255)" >&3
    rm -f /tmp/command.$number /tmp/status.$number
done
