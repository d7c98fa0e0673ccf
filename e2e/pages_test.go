package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// runs maps each page to the test that runs all commands of the page, in
// order.
var runs = map[string]string{
	"../README.md":           "TestREADME",
	"../docs/guide.md":       "TestGuide",
	"../docs/torch.md":       "TestTorchPage",
	"../docs/variables.md":   "TestTorchPage",
	"../docs/environment.md": "TestTorchPage",
	"../docs/own-trainer.md": "TestOwnTrainerPage",
}

// Every code block of README.md and docs/ has a type. A block of type sh
// contains commands that a test runs. Source blocks have the type go, python
// or toml. Type text is for screens and for examples that no test runs. Each
// page with sh blocks must have a test that reads the commands from the page.
func TestCommandsOfPagesAreRun(t *testing.T) {
	for _, page := range pages(t) {
		commands := 0
		for _, b := range blocksOf(t, page) {
			if !slices.Contains([]string{"sh", "text", "go", "python", "toml"}, b.language) {
				t.Errorf("%s: a block begins with ```%s: want sh for commands that a test runs, or text for an example:\n%s", page, b.language, b.text)
			}
			if b.language == "sh" {
				commands++
			}
		}
		if name, listed := runs[page]; (commands > 0) != listed {
			t.Errorf("%s has %d blocks of commands, and the test that runs them is %q", page, commands, name)
		}
	}
	var tests strings.Builder
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		tests.Write(read(t, file))
	}
	for page, name := range runs {
		_, body, _ := strings.Cut(tests.String(), "\nfunc "+name+"(t *testing.T) {\n")
		body, _, _ = strings.Cut(body, "\n}\n")
		if !strings.Contains(body, `commandsOf(t, "`+page+`")`) {
			t.Errorf("%s does not run the commands of %s", name, page)
		}
	}
}

// pages are README.md and all of docs.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("../docs/*.md")
	if err != nil || len(found) < 10 {
		t.Fatalf("docs has %d pages: %v", len(found), err)
	}
	return append(found, "../README.md")
}

// fenced is what stands between two lines of three backquotes.
type fenced struct{ language, text string }

var fence = regexp.MustCompile("(?m)^```(.*)$")

func blocksOf(t *testing.T, page string) (blocks []fenced) {
	t.Helper()
	text := string(read(t, page))
	fences := fence.FindAllStringSubmatchIndex(text, -1)
	if len(fences)%2 != 0 {
		t.Fatalf("%s: a block does not end", page)
	}
	for i := 0; i < len(fences); i += 2 {
		blocks = append(blocks, fenced{text[fences[i][2]:fences[i][3]], text[fences[i][1]:fences[i+1][0]]})
	}
	return blocks
}

// commandsOf returns the commands of a page without duplicates. Each line of a
// sh block is a command.
func commandsOf(t *testing.T, page string) (commands []string) {
	t.Helper()
	for _, b := range blocksOf(t, page) {
		if b.language != "sh" {
			continue
		}
		for line := range strings.Lines(b.text) {
			if line = strings.TrimSpace(line); line != "" && !slices.Contains(commands, line) {
				commands = append(commands, line)
			}
		}
	}
	return commands
}

// newcomer runs the commands of a page like a reader who types them into one
// shell.
type newcomer struct {
	*bench
	dir   string // present folder
	ran   []string
	state string // file in which the shell stores its current folder
}

// clonesThis makes git clone this repository instead of the published one.
func (b *bench) clonesThis() {
	b.t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		b.t.Fatal(err)
	}
	put(b.t, filepath.Join(b.home, ".gitconfig"),
		"[url \""+root+"\"]\n\tinsteadOf = https://github.com/plx-run/plx\n[safe]\n\tdirectory = *\n", 0o644)
}

// newcomer starts a newcomer in the home directory. If bin is given, the
// commands run the plx that is installed in bin.
func (b *bench) newcomer(bin string) *newcomer {
	b.t.Helper()
	c := *b
	if bin != "" {
		c.plx = filepath.Join(bin, "plx")
	}
	return &newcomer{bench: &c, dir: b.home, state: filepath.Join(b.t.TempDir(), "folder")}
}

// run starts a command in the folder in which the previous command left the
// shell.
func (r *newcomer) run(command string) *running {
	r.t.Helper()
	if folder, err := os.ReadFile(r.state); err == nil {
		r.dir = strings.TrimSpace(string(folder))
	}
	r.ran = append(r.ran, command)
	return r.shell(r.dir, command+"\nstatus=$?; pwd >"+r.state+"; exit $status")
}

// all fails the test unless, for each part, exactly this number of executed
// commands contain the part.
func (r *newcomer) all(parts map[string]int) {
	r.t.Helper()
	for part, want := range parts {
		n := 0
		for _, command := range r.ran {
			if strings.Contains(command, part) {
				n++
			}
		}
		if n != want {
			r.t.Errorf("%d commands have %q, want %d, of %q", n, part, want, r.ran)
		}
	}
}
