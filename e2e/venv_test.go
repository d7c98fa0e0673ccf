//go:build long

package e2e

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// system is a Python interpreter that this machine and the hosts have.
const system = "/usr/bin/python3"

// newVenv creates a virtual environment with a module "tool" and a command
// "tool".
func newVenv(t *testing.T, interpreter, dir string, more ...string) {
	t.Helper()
	args := append([]string{"-m", "venv", "--without-pip"}, more...)
	if out, err := exec.Command(interpreter, append(args, dir)...).CombinedOutput(); err != nil {
		t.Fatalf("make a virtual environment: %v: %s", err, out)
	}
	sites, err := filepath.Glob(filepath.Join(dir, "lib", "python3*", "site-packages"))
	if err != nil || len(sites) != 1 {
		t.Fatalf("site-packages: %v, %v", sites, err)
	}
	put(t, filepath.Join(sites[0], "tool.py"), "import os, sys\ndef main(): print(os.path.dirname(os.path.dirname(sys.executable)) == sys.prefix == os.environ['VIRTUAL_ENV'], sys.prefix != sys.base_prefix, __cached__ and os.path.exists(__cached__), *sys.argv[1:])\n", 0o644)
	put(t, filepath.Join(dir, "bin", "tool"), "#!"+filepath.Join(dir, "bin", "python3")+"\nimport tool\ntool.main()\n", 0o755)
	if out, err := exec.Command(filepath.Join(dir, "bin", "python3"), "-c", "import tool").CombinedOutput(); err != nil { // compiles it
		t.Fatalf("import tool: %v: %s", err, out)
	}
}

// TestVenv runs tasks in virtual environments of this machine.
func TestVenv(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(system); err != nil {
		skip(t, err.Error())
	}
	b := newBench(t, testhosts.Options{Hosts: 2, GPUs: []int{1, 1}})
	file := b.ResourceFile()
	b.dir = t.TempDir()
	put(t, filepath.Join(b.dir, "train.py"), "import tool, sys\ntool.main()\n", 0o644)
	t.Run("system interpreter", func(t *testing.T) { systemVenv(b.in(t), file) })
	t.Run("interpreter under the home", func(t *testing.T) { homeVenv(b.in(t), file) })
	t.Run("imports", func(t *testing.T) { venvImports(b.in(t), file) })
	t.Run("help", func(t *testing.T) { helpExamples(b.in(t)) })
	t.Run("setup in turn", func(t *testing.T) { setupInTurn(b.in(t)) })
	t.Run("setup", func(t *testing.T) { setupOnce(b.in(t)) })
	t.Run("conda", func(t *testing.T) { condaRecipe(b.in(t)) })
	t.Run("prune", func(t *testing.T) { pruneVenv(b.in(t), file) })
	t.Run("mistakes", func(t *testing.T) { venvMistakes(b.in(t), file) })
	b.hostsGone(0)
}

// both fails the test unless both tasks printed exactly these lines.
func (b *bench) both(res result, want ...string) {
	b.t.Helper()
	for _, task := range []string{"worker:0", "worker:1"} {
		same(b.t, task, []byte(strings.Join(want, "\n")), []byte(strings.Join(lines(res.stdout, task), "\n")))
	}
}

func systemVenv(b *bench, file string) {
	newVenv(b.t, system, filepath.Join(b.dir, ".venv"))
	res := b.want(0, "launch", "--hosts", file, "--venv", ".venv", "--workdir", ".", "--check-import", "tool,json", "python3", "train.py", "script")
	b.both(res, "True True True script")
	b.brief(res)
	// The second launch sends nothing. It runs a program of the environment,
	// and uses its script activate.
	res = b.want(0, "launch", "--hosts", file, "--venv", ".venv", "--setup", ". $VIRTUAL_ENV/bin/activate", ".venv/bin/tool", "command")
	b.both(res, "True True True command")
	if strings.Contains(res.stderr, "sent ") {
		b.t.Errorf("an unchanged environment was sent again:\n%s", res.stderr)
	}
	res = b.want(0, "launch", "--hosts", file, "--venv", ".venv", "--env", "VIRTUAL_ENV=mine", "--env", "PATH=/usr/bin:/bin",
		"sh", "-c", "echo $VIRTUAL_ENV $PATH; command -v python3")
	b.both(res, "mine /usr/bin:/bin", "/usr/bin/python3")
}

// homeVenv sends an environment as uv creates it: its interpreter lies in the
// home directory, and the hosts do not have it.
func homeVenv(b *bench, file string) {
	base := filepath.Join(b.home, ".local", "share", "uv", "python", "cpython-3-linux")
	copied := exec.Command("sh", "-ec", `
version=$(/usr/bin/python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
mkdir -p "$1/bin" "$1/lib/$version"
cp "/usr/bin/$version" "$1/bin"
cd "/usr/lib/$version"
cp -r ./*.py encodings collections importlib json logging re* venv "$1/lib/$version"
find "$1" -name __pycache__ -exec rm -r {} +
ln -s "$version" "$1/bin/python3"`, "sh", base)
	if out, err := copied.CombinedOutput(); err != nil {
		b.t.Fatalf("copy an interpreter: %v: %s", err, out)
	}
	dir := filepath.Join(b.dir, "uv")
	newVenv(b.t, filepath.Join(base, "bin", "python3"), dir)
	res := b.want(0, "launch", "--hosts", file, "--venv", "uv", "python", "-c",
		"import sys, tool; tool.main(); print(sys.base_prefix.startswith(sys.prefix.rpartition('/')[0]))")
	b.both(res, "True True True", "True")
}

// venvImports imports a stand-in for PyTorch. It needs a newer GPU driver than
// one host has, and finds no GPU on the other host.
func venvImports(b *bench, file string) {
	sites, err := filepath.Glob(filepath.Join(b.dir, ".venv", "lib", "python3*", "site-packages"))
	if err != nil || len(sites) != 1 {
		b.t.Fatalf("site-packages: %v, %v", sites, err)
	}
	check := func(cuda string) string {
		put(b.t, filepath.Join(sites[0], "torch.py"), "class version: cuda = "+cuda+"\nclass cuda:\n  def is_available(): return False\n__version__ = '2.9'\n", 0o644)
		code := map[bool]int{true: 0, false: 125}[cuda == "None"]
		return b.want(code, "launch", "--hosts", file, "--venv", ".venv", "--check-import", "torch", "python3", "-c", "pass").stderr
	}
	contains(b.t, check("'12.1'"), "host h1: torch 2.9 is built for CUDA 12.1, which needs NVIDIA driver 525.60.13 or later, and the driver is 418.",
		"host h2: torch 2.9 is built for CUDA 12.1 and finds no GPU; the driver is 535.", "hint: install a torch for an older CUDA")
	contains(b.t, check("None"), "note: torch 2.9 is built for CPUs only, and workers have GPUs")
	res := b.want(125, "launch", "--hosts", file, "--venv", ".venv", "--check-import", "tool,nothing.here", "python3", "-c", "print('ran')")
	contains(b.t, res.stderr, "plx: --check-import: hosts h[1-2]: import nothing.here: ModuleNotFoundError: No module named 'nothing'")
	contains(b.t, b.want(2, "launch", "--hosts", file, "--check-import", "a,b c", "python3").stderr, `"b c" is no name of a module`)
}

// helpExamples runs the examples in plx launch --help without changes.
func helpExamples(b *bench) {
	put(b.t, filepath.Join(b.dir, "resources.txt"), string(read(b.t, b.ResourceFile("h1", "h2"))), 0o644)
	put(b.t, filepath.Join(b.dir, "train.py"), "print('trained')\n", 0o644)
	put(b.t, filepath.Join(b.dir, "train"), "#!/bin/sh\necho train \"$@\"\n", 0o755)
	_, after, _ := strings.Cut(b.want(0, "launch", "--help").stdout, "Examples:\n")
	examples, _, _ := strings.Cut(after, "\n\n")
	ran := 0
	for example := range strings.Lines(examples) {
		want := "worker:1 h2 | "
		if strings.Contains(example, "--slurm ") { // this machine has no Slurm
			example, want = strings.Replace(example, "launch ", "launch --dry-run ", 1), "sbatch "
		}
		script := b.script("example", `plx() { "$PLX" "$@"; }`+"\n"+strings.TrimSpace(example))
		cmd := exec.Command(script)
		cmd.Dir, cmd.Env = b.dir, append(environ(), "HOME="+b.home, "PLX="+b.plx)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			b.t.Errorf("%s%v: %s", example, err, out)
		}
		ran++
	}
	if ran < 4 {
		b.t.Errorf("%d examples ran: %s", ran, examples)
	}
}

// setupInTurn runs three tasks on one host, whose --setup lines fail if two
// run at the same time.
func setupInTurn(b *bench) {
	res := b.want(0, "launch", "--host", "h1: cpu*3", "--chdir", ".", "--setup", "mkdir busy && sleep 0.2 && rmdir busy && export RAN=$PWD",
		"sh", "-c", `[ "$RAN" = "$PWD" ] && [ ! -e /proc/self/fd/9 ] && echo ran`)
	for _, task := range []string{"worker:0", "worker:1", "worker:2"} {
		same(b.t, task, []byte("ran"), []byte(strings.Join(lines(res.stdout, task), "\n")))
	}
}

// setupOnce runs a line of shell once on each host, in the working directory,
// for all tasks and for both generations.
func setupOnce(b *bench) {
	put(b.t, filepath.Join(b.dir, "own.py"), "import made\n", 0o644)
	line := "echo begun; echo x = 1 >> made.py; export RAN=$PWD RANK=77; ulimit -c 0; umask 077; unset LANG; export PYTHONPATH=$PWD; mkdir sub && cd sub"
	args := []string{"launch", "--host", "h1: cpu*2", "--host", "h2", "--env", "LANG=x", "--workdir", ".", "--max-restarts", "1", "--restart-backoff", "10ms"}
	res := b.want(0, append(args, "--setup", line, "--check-import", "own", "sh", "-c",
		`[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3; [ "$PWD" = "$RAN/sub" ] && echo $(grep -c x ../made.py) $(ulimit -c) $(umask) "$LANG" $RANK`)...)
	for rank, task := range []string{"worker:0", "worker:1", "worker:2"} {
		same(b.t, task, []byte("1 0 0077  "+strconv.Itoa(rank)), []byte(strings.Join(lines(res.stdout, task), "\n")))
	}
	contains(b.t, res.stderr, "plx: hosts h[1-2]: --setup: begun\n", "plx: hosts h[1-2]: --setup: it sets RANK, which plx sets for each task")
	for _, h := range b.Hosts {
		if kept, err := filepath.Glob(filepath.Join(h.HomeDir, ".plx", "jobs", "*", "*", "setup.json")); err != nil || len(kept) > 0 {
			b.t.Errorf("what --setup exported is kept on %s: %v, %v", h.Name, kept, err)
		}
	}
	left := func() (n int) {
		for _, h := range b.Hosts {
			jobs, err := os.ReadDir(filepath.Join(h.HomeDir, ".plx", "jobs"))
			if n += len(jobs); err != nil {
				b.t.Fatal(err)
			}
		}
		return n
	}
	before := left()
	for _, m := range []struct {
		line, limit string
		code        int
		says        []string
	}{
		{"echo out; echo why >&2; [ -e train.py ] && [ $PLX_BLAS = 1 ]", "1m", 125, []string{"plx: --setup 'echo out; echo why", ": hosts h[1-2]: it ended with status ", "plx:   out\nplx:   why\n", "hint: "}},
		{"echo waits; sleep 60", "2s", 125, []string{": hosts h[1-2]: it ran longer than 2s\nplx:   waits\nplx: hint: --setup-timeout"}},
		{"exit 0", "1m", 125, []string{"the line has ended the shell"}},
		{"echo ${LOCAL_RANK}", "1m", 2, []string{"--setup uses $LOCAL_RANK, which differs between tasks"}},
	} {
		res := b.want(m.code, "launch", "--host", "h1", "--host", "h2", "--workdir", ".", "--setup", m.line, "--setup-timeout", m.limit, "sh", "-c", "echo ran")
		contains(b.t, res.stderr, m.says...)
		if res.stdout != "" || left() != before {
			b.t.Errorf("after %q: %q was printed, hosts have %d jobs, and had %d", m.line, res.stdout, left(), before)
		}
	}
}

// condaRecipe runs the recipe for conda from the documentation, with an
// archive in the format of conda-pack. Its command conda-unpack must run once
// on each host.
func condaRecipe(b *bench) {
	dir := filepath.Join(b.dir, "packed", "bin")
	put(b.t, filepath.Join(dir, "activate"), "export ENV=active\n", 0o644)
	put(b.t, filepath.Join(dir, "conda-unpack"), "open('unpacked', 'a').write('once')\n", 0o644)
	if err := os.Symlink(system, filepath.Join(dir, "python")); err != nil {
		b.t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-C", filepath.Dir(dir), "-czf", filepath.Join(filepath.Dir(b.dir), "env.tar.gz"), ".").CombinedOutput(); err != nil {
		b.t.Fatalf("tar: %v: %s", err, out)
	}
	put(b.t, filepath.Join(b.dir, "train.py"), "import os; print(os.environ['ENV'], open('unpacked').read())\n", 0o644)
	put(b.t, filepath.Join(b.dir, ".plxignore"), "/packed/\n", 0o644)
	put(b.t, filepath.Join(b.dir, "resources.txt"), string(read(b.t, b.ResourceFile("h1: cpu*2", "h2"))), 0o644)
	_, after, _ := strings.Cut(string(read(b.t, "../docs/environment.md")), "plx launch --hosts resources.txt --workdir . --copy ../env.tar.gz")
	line, _, _ := strings.Cut(after, "\n")
	res := b.shell(b.dir, "plx launch --hosts resources.txt --workdir . --copy ../env.tar.gz"+line).want(0)
	for _, task := range []string{"worker:0", "worker:1", "worker:2"} {
		same(b.t, task, []byte("active once"), []byte(strings.Join(lines(res.stdout, task), "\n")))
	}
}

// pruneVenv checks that plx prune keeps an environment while a job uses it.
func pruneVenv(b *bench, file string) {
	r := b.start("launch", "--hosts", file, "--venv", ".venv", "sh", "-c", `until [ -e "$HOME/go" ]; do sleep 0.1; done; tool later`)
	for _, h := range b.Hosts {
		b.process(h, `until [ -e "$HOME/go" ]`)
	}
	b.want(0, "prune", "--older", "0s")
	for _, h := range b.Hosts {
		put(b.t, filepath.Join(h.HomeDir, "go"), "", 0o644)
	}
	res := r.wait()
	b.both(res, "True True True later")
	b.want(0, "prune", "--older", "0s")
	for _, h := range b.Hosts {
		for _, folder := range []string{"envs", "files"} {
			err := filepath.WalkDir(filepath.Join(h.HomeDir, ".plx", folder), func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					b.t.Errorf("host %s has %s after a prune", h.Name, path)
				}
				return err
			})
			if err != nil {
				b.t.Error(err)
			}
		}
	}
}

// venvMistakes launches with environments that plx cannot send, or that no
// host can run.
func venvMistakes(b *bench, file string) {
	fake := func(name, change string) {
		put(b.t, filepath.Join(b.dir, name+"-python"), "#!/bin/sh\n"+system+` "$@" | sed '`+change+"'\n", 0o755)
		put(b.t, filepath.Join(b.dir, name, "pyvenv.cfg"), "home = "+b.dir+"\n", 0o644)
		put(b.t, filepath.Join(b.dir, name, "lib", "python3.99", "site-packages", "x.py"), "", 0o644)
		put(b.t, filepath.Join(b.dir, name, "bin", "x"), "", 0o644)
		if err := os.Symlink(filepath.Join(b.dir, name+"-python"), filepath.Join(b.dir, name, "bin", "python")); err != nil {
			b.t.Fatal(err)
		}
	}
	fake("later", `s/"version": "[^"]*"/"version": "3.99.1"/`)
	fake("elsewhere", `s/"version": "[^"]*"/"version": "3.99.1"/; s/linux-[a-z0-9_]*"/linux-riscv64"/`)
	fake("upgraded", `s/"version": "[^"]*"/"version": "3.98.7"/`)
	put(b.t, filepath.Join(b.dir, "conda", "conda-meta", "history"), "", 0o644)
	for _, m := range []struct {
		venv string
		code int
		says []string
	}{
		{"later", 125, []string{"hosts h[1-2]: the environment is for Python 3.99.1 ", "on this host there is no " + filepath.Join(b.dir, "later-python"), system + " is Python 3.", "hint: install the same version"}},
		{"elsewhere", 125, []string{"hosts h[1-2]: the environment is for Python 3.99.1 ", ", and this host is linux/"}},
		{"upgraded", 2, []string{"its packages are for python3.99, and its interpreter ", "is Python 3.98.7", "hint: make the environment again"}},
		{"conda", 2, []string{"it is a conda environment", "hint: pack it with conda-pack"}},
		{".", 2, []string{"it has no pyvenv.cfg", "hint: --venv .venv"}},
		{"none", 2, []string{"--venv none on this machine: ", "no such file", "hint: python3 -m venv DIR"}},
	} {
		contains(b.t, b.want(m.code, "launch", "--hosts", file, "--venv", m.venv, "python3", "-c", "print('ran')").stderr, m.says...)
	}
}
