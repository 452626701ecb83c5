#!/usr/bin/busybox sh
# Serves one virtio port. An input line is "NUMBER base64(command)". The reply is the command's output and a line "@@END NUMBER STATUS".
exec 3<>"$1" || exit 1
cd /root
while read -r number text <&3; do
    echo "$text" | base64 -d >/tmp/command.$number
    setsid /usr/bin/dash /tmp/command.$number </dev/null 3>&- 2>&1 | cat >&3
    # The shell does not provide the status of the first program in the pipe, so the command itself writes its status
    # to a file.
    printf '\n@@END %s %s\n' "$number" "$(cat /tmp/status.$number 2>/dev/null || echo 255)" >&3
    rm -f /tmp/command.$number /tmp/status.$number
done
