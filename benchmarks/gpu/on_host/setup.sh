#!/usr/bin/env bash
# Make a machine without sshd and network able to run fleetctl's lab; run as root, from the repository.
#
#   setup.sh BUNDLE DIR     BUNDLE: what `python -m benchmarks.gpu.on_host.pack` wrote
#
# In DIR: ssh/ (sshd, ssh, ssh-keygen) and python/, an environment on top of the machine's python3.
# On the machine: a login `sshd` for privilege separation, and the driver's libraries and programs
# where services find them that inherit no environment.
set -euo pipefail
bundle=$1 folder=$2

mkdir -p "$folder/ssh"
tar -xzf "$bundle/ssh.tar.gz" -C "$folder/ssh"
chown -R root:root "$folder/ssh"

site_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
python3 -m venv --without-pip "$folder/python"
own=$(site_of "$folder/python/bin/python")
printf "import site; site.addsitedir('%s')\n" "$(site_of python3)" > "$own/machine.pth"
python3 -m pip --python "$folder/python/bin/python" install --quiet --no-index --no-deps \
  --no-compile --no-cache-dir --ignore-installed "$bundle"/wheels/*.whl

grep -q '^sshd:' /etc/passwd || echo 'sshd:x:110:65534::/run/sshd:/usr/sbin/nologin' >> /etc/passwd
# an account that is locked may not log in with a key either, where sshd does not ask PAM
if grep -q '^root:!' /etc/shadow 2> /dev/null; then sed -i 's/^root:!*/root:*/' /etc/shadow; fi

if [ -n "${LD_LIBRARY_PATH:-}" ] && ! ldconfig -p | grep -q 'libcuda\.so\.1'; then
  tr : '\n' <<< "$LD_LIBRARY_PATH" | grep '^/' > /etc/ld.so.conf.d/from-environment.conf
  ldconfig
fi
smi=$(command -v nvidia-smi || true)
case $smi in
  "" | /usr/bin/* | /usr/local/bin/*) ;;
  *) ln -sf "$smi" /usr/local/bin/nvidia-smi ;;
esac
