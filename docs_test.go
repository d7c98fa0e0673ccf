package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// Each plx command in a code block of the docs exists and has the flags that
// are used, even if no test runs the block.
func TestDocumentedCommandsExist(t *testing.T) {
	block := regexp.MustCompile("(?ms)^```(?:sh|text)\n(.*?)^```$")
	typed := regexp.MustCompile(`^(?:\$ )?plx (.*)`)
	version := regexp.MustCompile(`^plx v[0-9]`) // what plx version prints
	count := 0
	for _, page := range pagesHere(t) {
		if page == filepath.Join("docs", "cli.md") { // this page is the help text and has no command lines
			continue
		}
		for _, found := range block.FindAllStringSubmatch(readAll(t, page), -1) {
			for line := range strings.Lines(found[1]) {
				if command := typed.FindStringSubmatch(strings.TrimSpace(line)); command != nil && !version.MatchString(line) {
					count++
					if wrong := unknownWord(splitWords(command[1])); wrong != "" {
						t.Errorf("%s: plx has no %s: %s", page, wrong, line)
					}
				}
			}
		}
	}
	if count < 40 {
		t.Errorf("the pages have %d commands, want 40 at least", count)
	}
	for line, want := range map[string]string{"lunch x": "command lunch", "launch --host h1 --zzz 'a b' x": "flag --zzz", "launch --host 'a --b' x --zzz": ""} {
		if got := unknownWord(splitWords(line)); got != want {
			t.Errorf("plx %s: got %q, want %q", line, got, want)
		}
	}
}

// unknownWord returns the command or flag in words that plx does not have, or
// "".
func unknownWord(words []string) string {
	cmd := (&command{}).app().Command(words[0])
	if cmd == nil {
		return "command " + words[0]
	}
	names := []string{"h", "help"}
	for _, f := range cmd.Flags {
		names = append(names, f.Names()...)
	}
	for i := 1; i < len(words); i++ {
		word := words[i]
		name, _, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
		switch {
		case word == "--" || word == "#" || word == "|" || word == ";" || !strings.HasPrefix(word, "-") && forProgram(cmd):
			return ""
		case !strings.HasPrefix(word, "-"): // a job
		case !slices.Contains(names, name):
			return "flag " + word
		case !given && takesNext(cmd, word):
			i++
		}
	}
	return ""
}

// forProgram says whether the words from the first argument on are those of a program.
func forProgram(cmd *cli.Command) bool { return cmd.Name == "launch" || cmd.Name == "exec" }

// splitWords splits a line into words as a shell would, without expansions.
func splitWords(line string) (words []string) {
	word := regexp.MustCompile(`(?:[^\s'"]|'[^']*'|"[^"]*")+`)
	for _, w := range word.FindAllString(line, -1) {
		words = append(words, strings.NewReplacer("'", "", `"`, "").Replace(w))
	}
	return words
}

// Each path that a page of the docs names exists in the repository, and each
// link leads to a file.
func TestDocumentedPathsExist(t *testing.T) {
	elsewhere := regexp.MustCompile(`^(docs/gpu-check\.json|logs/worker-3\.std(out|err))$`) // files that a GPU check or a job creates
	folders := foldersHere(t)
	count := 0
	for _, page := range pagesHere(t) {
		for _, path := range pathsOf(page, readAll(t, page), folders) {
			if elsewhere.MatchString(path) {
				continue
			}
			count++
			if found, err := filepath.Glob(path); err != nil || len(found) == 0 {
				t.Errorf("%s: no %s in the repository: write a path from its root", page, path)
			}
		}
	}
	if count < 700 {
		t.Errorf("the pages name %d paths, want 700 at least", count)
	}
}

// pathsOf returns the paths that a page names: targets of links, names in its
// directory tree, and words that look like paths. Such a word begins with a
// top-level directory, ends in .go, or is the end of a directory's path.
func pathsOf(page, text string, folders []string) (paths []string) {
	link := regexp.MustCompile(`\[[^\]]*\]\(([^)\s#:]+)(?:#[^)\s]*)?\)`)
	text = link.ReplaceAllStringFunc(text, func(found string) string {
		paths = append(paths, path.Join(path.Dir(page), link.FindStringSubmatch(found)[1]))
		return ""
	})
	ofTest := regexp.MustCompile(`\.(Test|Fuzz|Benchmark|Example)[A-Z]\w*$`)
	for _, word := range regexp.MustCompile("[^\\s`()\\[\\]|,;\"'=]+").FindAllString(text, -1) {
		word = ofTest.ReplaceAllString(strings.TrimRight(strings.TrimPrefix(word, "./"), "./:?"), "")
		top, _, inside := strings.Cut(word, "/")
		if strings.HasSuffix(word, ".go") || inside && slices.ContainsFunc(folders, func(folder string) bool {
			return folder == top || strings.HasSuffix(folder, "/"+word)
		}) {
			paths = append(paths, word)
		}
	}
	return append(paths, namesInTree(text)...)
}

// namesInTree returns the paths of the tree in ARCHITECTURE.md. What a folder holds stands in
// the lines below it, two columns further right.
func namesInTree(text string) (paths []string) {
	_, tree, _ := strings.Cut(text, "\n## The tree\n\n```\n")
	tree, _, _ = strings.Cut(tree, "```\n")
	var above []string // the folders around a line
	for line := range strings.Lines(tree) {
		entry := strings.TrimLeft(line, " ")
		names, _, _ := strings.Cut(entry, "  ")
		list := strings.Split(names, ", ")
		above = above[:min((len(line)-len(entry))/2, len(above))]
		first := path.Join(append(slices.Clone(above), list[0])...)
		for _, name := range list {
			paths = append(paths, path.Join(path.Dir(first), path.Base(name)))
		}
		if strings.HasSuffix(list[0], ".go") {
			list[0] = "." // what stands below is beside it
		}
		above = append(above, list[0])
	}
	return paths
}

// foldersHere returns the folders of the repository, without those that git ignores.
func foldersHere(t *testing.T) (folders []string) {
	t.Helper()
	ignored := readAll(t, ".gitignore")
	err := filepath.WalkDir(".", func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil || !entry.IsDir() || path == ".":
			return err
		case path == ".git" || strings.Contains(ignored, "\n/"+filepath.ToSlash(path)+"/\n"):
			return filepath.SkipDir
		}
		folders = append(folders, filepath.ToSlash(path))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return folders
}

// pagesHere returns the pages of docs, and those of the root but for the changelog, which
// names what was.
func pagesHere(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(pages, "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
}

// Every test and every Example that a page names exists, in the package that the page names.
func TestDocumentedTestsExist(t *testing.T) {
	exists := testsHere(t)
	named := regexp.MustCompile("`(?:([a-z0-9/]+)\\.)?((?:Test|Fuzz|Benchmark|Example)[A-Z][A-Za-z0-9_]*)`(?: \\(([a-z]+(?:/[a-z0-9]+)+)\\)| of package `([a-z0-9/]+)`)?")
	count, examples := 0, map[string]bool{}
	trained := []string{"docs/hooks.md", "docs/sparse.md", "docs/trainer.md", "docs/data.md", "docs/models.md"}
	for _, page := range pagesHere(t) {
		for _, m := range named.FindAllStringSubmatch(readAll(t, page), -1) {
			count++
			examples[page] = examples[page] || strings.HasPrefix(m[2], "Example")
			if in := exists[m[2]]; len(in) == 0 || m[1]+m[3]+m[4] != "" && !slices.Contains(in, m[1]+m[3]+m[4]) {
				t.Errorf("%s: %s: packages with such a test: %v", page, m[0], in)
			}
		}
	}
	for _, page := range trained {
		if !examples[page] {
			t.Errorf("%s names no Example", page)
		}
	}
	if count < 60 {
		t.Errorf("the pages name %d tests, want 60 at least", count)
	}
}

// testsHere returns the folders of this module that have a test, by its name.
func testsHere(t *testing.T) map[string][]string {
	t.Helper()
	declared := regexp.MustCompile(`^func ((?:Test|Fuzz|Benchmark|Example)[A-Z]\w*)\(`)
	found := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, entry os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "func ") { // few lines do, and the pattern is slow
				continue
			}
			if m := declared.FindStringSubmatch(line); m != nil {
				found[m[1]] = append(found[m[1]], filepath.ToSlash(filepath.Dir(path)))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestChangelogHasNextRelease finds the next release at the top of CHANGELOG.md, with a text.
func TestChangelogHasNextRelease(t *testing.T) {
	changes, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile("goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^## \[(\d\S*)\]`).FindSubmatch(changes)
	if m == nil || !strings.Contains(string(config), "\n  version_template: "+string(m[1])+"-snapshot\n") {
		t.Fatalf("goreleaser.yaml does not make the version of CHANGELOG.md, %q", m)
	}
	notes, err := exec.Command("scripts/release-notes", string(m[1])).Output()
	if err != nil || !strings.Contains(string(notes), "### Added") || strings.Contains(string(notes), "\n## ") {
		t.Errorf("the text of release %s: %v\n%s", m[1], err, notes)
	}
	if err := exec.Command("scripts/release-notes", "99.0.0").Run(); err == nil {
		t.Error("a version without a section has a text")
	}
}

// The page for people who come from torchrun is one that is read to its end.
func TestTorchPageIsShort(t *testing.T) {
	text, err := os.ReadFile("docs/torch.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(text))); n > 1500 {
		t.Errorf("docs/torch.md has %d words, want 1500 at most: move what few need to another page", n)
	}
}

// docs/examples.md has what Adagrad's sums of squares begin with in each example, as the
// source has it.
func TestExamplesPageHasAccumulators(t *testing.T) {
	page := readAll(t, "docs/examples.md")
	for section, source := range map[string]struct{ file, pattern string }{
		"mnist": {"trainer/optimizer.go", `optimizer\.Adagrad, Accumulator: ([0-9.e-]+)`},
		"lm":    {"examples/lm/main.go", `Settings\.Accumulator = ([0-9.e-]+)`},
	} {
		_, text, _ := strings.Cut(page, "\n## "+section+"\n")
		text, _, _ = strings.Cut(text, "\n## ")
		want := regexp.MustCompile(source.pattern).FindStringSubmatch(readAll(t, source.file))
		got := regexp.MustCompile(`sums of squares begin at ([0-9.e-]*[0-9])`).FindStringSubmatch(text)
		if len(want) < 2 || len(got) < 2 || got[1] != want[1] {
			t.Errorf("%s: the page says %q, %s %q", section, got, source.file, want)
		}
	}
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// No built program and no large file is in the repository: they would stay in its history.
func TestNoLargeFiles(t *testing.T) {
	index, err := exec.Command("git", "rev-parse", "--git-path", "index").Output()
	if err == nil {
		_, err = os.Stat(strings.TrimSpace(string(index))) // so that go test repeats the test once a file was added
	}
	if err != nil {
		t.Fatal(err)
	}
	list, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.FieldsFunc(string(list), func(c rune) bool { return c == 0 })
	if len(files) < 1000 {
		t.Fatalf("git lists %d files", len(files))
	}
	for _, name := range files {
		info, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if !info.Mode().IsRegular() {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		head := make([]byte, 4)
		n, _ := io.ReadFull(f, head) // a shorter file is no program
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if info.Size() > 1<<20 || string(head[:n]) == "\x7fELF" {
			t.Errorf("%s, %d bytes: build it, or make it smaller", name, info.Size())
		}
	}
}
