//go:build long

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/executable"
	"github.com/plx-run/plx/internal/testhosts"
)

// The tests of this file are named after the rows of a list of reports. Other tests of the
// same names try the parts.

func writeInto(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := executable.Write(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func textOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestReportS2 launches from a host on which only the system's configuration defines the
// other, without and with a configuration of the user's.
func TestReportS2(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	here, there := b.Hosts[0], b.Hosts[1]
	writeInto(t, here.HomeDir+"/plx", textOf(t, b.plx), 0o700)
	writeInto(t, here.HomeDir+"/key", textOf(t, b.Home+"/.ssh/id_ed25519"), 0o600)
	writeInto(t, here.HomeDir+"/.ssh/known_hosts", textOf(t, b.Home+"/.ssh/known_hosts"), 0o600)
	inside(t, here, fmt.Sprintf("printf 'Host gpu\\nHostName %s\\nUser root\\nIdentityFile ~/key\\n' >/etc/ssh/ssh_config", there.Addr))
	for _, own := range []string{"", "Host other\nPort 7\n"} {
		if own != "" {
			writeInto(t, here.HomeDir+"/.ssh/config", own, 0o600)
		}
		out, err := here.Command(t.Context(), "sh", "-c", `"$HOME"/plx launch --host 'gpu: cpu' hostname 2>&1`).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "| "+there.Name+"\n") {
			t.Errorf("with own configuration %q: %v\n%s", own, err, out)
		}
	}
}

// TestReportS3 reaches a server that has nothing in common with plx through ssh, as the hint
// says.
func TestReportS3(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 1})
	inside(t, b.Hosts[0], "/usr/sbin/sshd -p 2200 -o KexAlgorithms=sntrup761x25519-sha512@openssh.com")
	config := b.Home + "/.ssh/config"
	writeInto(t, config, fmt.Sprintf("Host h1\nHostName %s\nPort 2200\nHostKeyAlias %[1]s\n", b.Hosts[0].Addr), 0o600)
	b.says(b.want(125, "launch", "--host", "h1: cpu", "true"), "h1", "its SSH server offers nothing for the key exchange that plx implements: sntrup761x25519-sha512@openssh.com")
	ssh := fmt.Sprintf("ssh -F %s -i %s/.ssh/id_ed25519 -o UserKnownHostsFile=%[2]s/.ssh/known_hosts -o BatchMode=yes {host}", config, b.Home)
	res := b.want(0, "launch", "--via", ssh, "--host", "h1: cpu", "hostname")
	contains(t, res.stdout, "h1")
}

// TestReportS7 launches on a host whose home is mounted noexec.
func TestReportS7(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 1})
	inside(t, b.Hosts[0], "mount -t tmpfs -o noexec tmpfs $HOME")
	b.says(b.want(125, "launch", "--host", "h1: cpu", "true"), "h1", "programs in ~/.plx cannot be executed: /root is mounted noexec; mount it without noexec, or")
}

// TestReportS8 launches through a ProxyCommand that is ssh itself.
func TestReportS8(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	gate := fmt.Sprintf("ssh -q -F none -i %s/.ssh/id_ed25519 -o UserKnownHostsFile=%[1]s/.ssh/known_hosts -o BatchMode=yes -W %%h:%%p %s", b.Home, b.Hosts[0].Addr)
	writeInto(t, b.Home+"/.ssh/config", fmt.Sprintf("Host h2\nHostName %s\nProxyCommand %s\n", b.Hosts[1].Addr, gate), 0o600)
	res := b.want(0, "launch", "--host", "h2: cpu", "hostname")
	contains(t, res.stdout, "h2")
	if logins, err := b.Hosts[0].Logins(); err != nil || logins == 0 {
		t.Errorf("%d logins at the gate, %v", logins, err)
	}
}

// TestReportS9 runs a program that a start-up file finds for people only, as the hint says.
func TestReportS9(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 1})
	home := b.Hosts[0].HomeDir
	writeInto(t, home+"/miniconda3/envs/x/bin/python9", "#!/bin/sh\necho it is python\n", 0o700)
	hook := `conda() { [ "$1" = activate ] && PATH=$HOME/miniconda3/envs/$2/bin:$PATH; }` + "\n"
	writeInto(t, home+"/miniconda3/bin/conda", "#!/bin/sh\n[ \"$*\" = 'shell.bash hook' ] && cat <<'end'\n"+hook+"end\n", 0o700)
	writeInto(t, home+"/.bashrc", "case $- in *i*) ;; *) return ;; esac\n"+hook, 0o600)
	launch := func(code int, more ...string) result {
		return b.want(code, append(append([]string{"launch", "--host", "h1: cpu"}, more...), "python9")...)
	}
	res := launch(127, "--setup", "source ~/.bashrc && conda activate x")
	const cure = `eval "$(~/miniconda3/bin/conda shell.bash hook)" && conda activate `
	contains(t, res.stderr, "hint: start-up files such as .bashrc mostly end early", "--setup '"+cure+"NAME'", "--path DIR")
	contains(t, launch(0, "--setup", cure+"x").stdout, "it is python")
	contains(t, launch(0, "--path", "/root/miniconda3/envs/x/bin").stdout, "it is python")
}

// TestReportP1 launches on a host with a slow nvidia-smi and its own CUDA_VISIBLE_DEVICES.
func TestReportP1(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 1, GPUs: []int{2}})
	inside(t, b.Hosts[0], `mv /usr/local/bin/nvidia-smi /usr/local/bin/quick
printf '#!/bin/sh\nsleep 6\nexec /usr/local/bin/quick "$@"\n' >/usr/local/bin/nvidia-smi; chmod 755 /usr/local/bin/nvidia-smi
echo 'export CUDA_VISIBLE_DEVICES=1' >$HOME/.bashrc`)
	res := b.want(0, "launch", "--host", "h1", "sh", "-c", "echo sees $CUDA_VISIBLE_DEVICES")
	contains(t, res.stdout, "sees 0", "sees 1")
	contains(t, res.stderr, "host h1: nvidia-smi is slow there: persistence mode makes it quick (sudo nvidia-smi -pm 1)",
		"waiting for h1 for", "host h1: its environment sets CUDA_VISIBLE_DEVICES=1, which does not count here: its tasks get 0,1; to keep the host's choice, write h1: 1")
}
