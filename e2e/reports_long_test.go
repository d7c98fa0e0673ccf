//go:build long

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// The tests of this file are named after the rows of a list of user reports.
// Other tests with the same names cover parts of these reports.

func writeInto(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := executable.Write(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// TestReportS3 connects by ssh, as the hint describes, to a server that shares
// no key exchange algorithm with plx.
func TestReportS3(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 1})
	inside(t, b.Hosts[0], "/usr/sbin/sshd -p 2200 -o KexAlgorithms=sntrup761x25519-sha512@openssh.com")
	config := b.Home + "/.ssh/config"
	writeInto(t, config, fmt.Sprintf("Host h1\nHostName %s\nPort 2200\nHostKeyAlias %[1]s\n", b.Hosts[0].Addr), 0o600)
	b.says(b.want(125, "launch", "--host", "h1: cpu", "true"), "h1", "its SSH server offers no key exchange that plx implements: sntrup761x25519-sha512@openssh.com")
	ssh := fmt.Sprintf("ssh -F %s -i %s/.ssh/id_ed25519 -o UserKnownHostsFile=%[2]s/.ssh/known_hosts -o BatchMode=yes {host}", config, b.Home)
	res := b.want(0, "launch", "--via", ssh, "--host", "h1: cpu", "hostname")
	contains(t, res.stdout, "h1")
}

// TestReportS9 follows the hint and runs a program that only an interactive
// shell finds, because a start-up file sets its path.
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
	contains(t, res.stderr, "hint: start-up files such as .bashrc usually return early", "--setup '"+cure+"NAME'", "--path DIR")
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

// TestReportA4 assigns AMD GPUs, which a stand-in for rocm-smi lists, to
// workers of any program.
func TestReportA4(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 1})
	inside(t, b.Hosts[0], `cat >/usr/local/bin/rocm-smi <<'END'
#!/bin/sh
cat <<'JSON'
{"card0": {"Card Series": "AMD Instinct MI210", "Unique ID": "0x9c1d2e3f4a5b6c7d", "GPU use (%)": "99", "VRAM Total Memory (B)": "68702699520", "VRAM Total Used Memory (B)": "21474836480", "PCI Bus": "0000:C1:00.0"}, "card1": {"Card Series": "AMD Instinct MI210", "Unique ID": "0x1122334455667788", "GPU use (%)": "0", "VRAM Total Memory (B)": "68702699520", "VRAM Total Used Memory (B)": "10485760", "PCI Bus": "0000:C6:00.0"}, "system": {"PID1": "python3, 1, 21000000000, 0, unknown"}}
JSON
END
chmod 755 /usr/local/bin/rocm-smi`)
	contains(t, b.want(0, "probe", "--host", "h1").stdout, "2, 1 free", "AMD Instinct MI210", "20480/65520", "GPU-1122334455667788")
	see := []string{"sh", "-c", "echo sees $ROCR_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES $CUDA_VISIBLE_DEVICES."}
	launch := func(code int, args ...string) result {
		return b.want(code, append(append([]string{"launch"}, args...), see...)...)
	}
	contains(t, launch(125, "--host", "h1").stderr, "GPUs are in use: host h1: GPU 0 by python3 of root (pid 1, 20027 MiB)")
	contains(t, launch(0, "--host", "h1", "--exclude", "h1:0").stdout, "sees 1 0 0.")
	contains(t, launch(0, "--host", "h1: GPU-1122").stdout, "sees GPU-1122334455667788 0 0.")
	contains(t, launch(0, "--host", "h1", "--share-gpus", "--visible", "host").stdout, "sees 0,1 0,1 0,1.")
	contains(t, launch(0, "--host", "h1: cpu").stdout, "sees .")
	r := b.start(brief(b.ResourceFile("h1: 1"), b.script("task", patient))...)
	r.up("worker:0")
	contains(t, launch(125, "--host", "h1: 1").stderr, "gpu 1: GPU GPU-1122334455667788 is reserved by job task-")
	r.signal(syscall.SIGTERM)
	r.wait()
}
