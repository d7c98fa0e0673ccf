package e2e

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/plx-run/plx/internal/test/testhosts"
)

var update = flag.Bool("update", false, "write what the commands print into README.md, and the samples of the fault grid")

// slow matches progress lines about work that takes longer than 3 or 10 s,
// such as a build on a slow machine. plx repeats them every minute.
var slow = regexp.MustCompile(`(?m)^plx: (preparing|building|connecting|probing|sending|starting|reading|looking|installing|waiting|ending|counting|the tasks run)\b.*\n`)

// TestREADME runs the commands of README.md in order, with an empty home
// directory, on this machine and on two hosts. Their output must equal the
// output in README.md. Each host has one worker, where README.md has two;
// TestREADMEAsItStands has two. TestREADMEInstalls runs the commands that
// build and install plx.
func TestREADME(t *testing.T) {
	runREADME(t, slices.DeleteFunc(commandsOf(t, "../README.md"), builds), strings.NewReplacer("cpu*2", "cpu", "4 ranks", "2 ranks", "launch --hosts", "launch --env OMP_NUM_THREADS=1 --hosts"))
}

// runREADME runs commands of README.md. change replaces text in the commands
// and in their expected output.
func runREADME(t *testing.T, commands []string, change *strings.Replacer) {
	needTorch(t)
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	b.clonesThis()
	r := b.newcomer("")
	shown := 0
	for _, command := range commands {
		begun := time.Now()
		res := r.run("exec 2>&1; " + change.Replace(command)).want(0)
		t.Logf("%.1f s: %s", time.Since(begun).Seconds(), command)
		printed := slow.ReplaceAllString(res.stdout, "")
		if r.shows(command, printed) {
			shown++
		}
		switch {
		case strings.Contains(command, "python3 train.py"):
			r.says(change.Replace(ansi.Strip(string(read(t, "../docs/terminal.ansi")))), printed) // README.md shows this output as a picture
		case strings.Contains(command, "resources.txt ./examples/mlp"):
			r.says(strings.ReplaceAll(string(read(t, "../README.md")), "127.0.0.2", "h1"), printed) // as on one machine
		}
	}
	if shown != 3 {
		t.Errorf("README.md shows what %d commands print, want 3", shown)
	}
	r.all(map[string]int{"git clone": 1, "plx version": 1, "plx launch bash": 1, "plx launch ./examples/mlp": 1, "plx probe": 1, "python3 train.py": 1, "resources.txt ./examples/mlp": 1})
	b.hostsGone(0)
}

// builds reports whether a command of README.md builds or installs plx.
func builds(command string) bool {
	return strings.HasPrefix(command, "make ") || strings.HasPrefix(command, "install ") || strings.HasPrefix(command, "go run ")
}

// shows compares the output of a command with the block below the command in
// README.md. It returns false if there is no such block.
func (r *newcomer) shows(command, printed string) bool {
	r.t.Helper()
	const page = "../README.md"
	text := string(read(r.t, page))
	_, below, _ := strings.Cut(text, "```sh\n"+command+"\n```\n\n```text\n")
	says, _, shown := strings.Cut(below, "```\n")
	if !shown {
		return false
	}
	if *update {
		put(r.t, page, strings.Replace(text, command+"\n```\n\n```text\n"+says, command+"\n```\n\n```text\n"+printed, 1), 0o644)
	} else if !alike(sorted(printed), sorted(says)) {
		r.t.Errorf("%s prints\n%s\nREADME.md says\n%s\ngo test ./e2e -run '^TestREADME$' -update writes that into README.md", command, printed, says)
	}
	return true
}

// says compares the lines that tasks have printed with the lines that a text
// shows.
func (r *newcomer) says(text, printed string) {
	r.t.Helper()
	shown, found := strings.Split(text, "\n"), 0
	for line := range strings.Lines(printed) {
		if strings.HasPrefix(line, "worker:") {
			found++
			if !slices.ContainsFunc(shown, func(l string) bool { return alike(l+"\n", line) }) {
				r.t.Errorf("there is no line %sin\n%s", line, text)
			}
		}
	}
	if found < 3 {
		r.t.Errorf("%d lines of tasks in\n%s", found, printed)
	}
}

// sorted sorts the lines of text, because the lines of two workers arrive in
// any order.
func sorted(text string) string {
	return strings.Join(slices.Sorted(strings.Lines(text)), "")
}

var (
	// varies matches text that differs between runs and machines.
	varies = regexp.MustCompile(`-\d{8}-\d{6}-[a-z0-9]{4}\b|([\d.]+ ?(ms|[smh]) ?)+\b|(\d+ +)?[\d.]+ [KMG]iB|\blib\w+\.so\S*| +`)
	number = regexp.MustCompile(`\d+\.\d+`)
)

// alike reports whether two outputs are equal except for numbers. Numbers may
// differ by 5 %, because another machine may compute with another library.
func alike(a, b string) bool {
	a, b = varies.ReplaceAllString(a, " "), varies.ReplaceAllString(b, " ")
	x, y := number.FindAllString(a, -1), number.FindAllString(b, -1)
	if number.ReplaceAllString(a, "N") != number.ReplaceAllString(b, "N") {
		return false
	}
	for i := range x {
		u, _ := strconv.ParseFloat(x[i], 64) // they are numbers
		v, _ := strconv.ParseFloat(y[i], 64)
		if u < 0.95*v || v < 0.95*u {
			return false
		}
	}
	return true
}

func TestAlike(t *testing.T) {
	const said = "h1   2     23.5 GiB  libopenblas.so.0  ok\nloss 3.7135 | step time 25ms\nplx: job a-20261128-023502-bvvh: done\n"
	for text, want := range map[string]bool{
		"h1   16    7.0 GiB  libmkl.so  ok\nloss 3.7136 | step time 1m 1.2 s\nplx: job a-20270101-000000-0000: done\n": true,
		strings.Replace(said, "3.7135", "2.7135", 1): false,
		strings.Replace(said, "done", "lost", 1):     false,
		strings.Replace(said, "h1", "h2", 1):         false,
		strings.Replace(said, "ok", "bad", 1):        false,
		strings.Replace(said, "job a", "job b", 1):   false,
	} {
		if got := alike(said, text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

// Every link in README.md and docs/ leads to an existing file.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, page := range pages(t) {
		for _, found := range link.FindAllStringSubmatch(string(read(t, page)), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), found[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}
