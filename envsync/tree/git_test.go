package tree

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ownConfig replaces the git configuration of the user who runs the tests.
func ownConfig(t *testing.T, config string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_CONFIG_GLOBAL", file)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
}

// listed returns the files in dir that git does not ignore, without nested
// repositories.
func listed(t *testing.T, dir string) []string {
	t.Helper()
	list := strings.FieldsFunc(git(t, dir, "ls-files", "-z", "-co", "--exclude-standard"), func(c rune) bool { return c == 0 })
	slices.Sort(list)
	return slices.Compact(list)
}

// A file that git tracks is sent even if a pattern matches it.
func TestFilesTrackedByGitAreSent(t *testing.T) {
	ownConfig(t, "")
	dir := t.TempDir()
	write(t, dir, map[string]string{".gitignore": "*.csv\nbuild/\n:(top)y\n", "data/train.csv": "", "data/other.csv": "", "build/lib.py": "",
		"build/lib.o": "", "build/deep/x": "", "train.py": "", "empty/": "", "build/empty/": "", "__pycache__/x.pyc": "", ":(top)x": "", ":(top)y": ""})
	git(t, dir, "init", "-q")
	git(t, dir, "add", "-f", "data/train.csv", "build/lib.py", "__pycache__/x.pyc")
	f := scan(t, dir)
	if got, want := files(f.Manifest), []string{".gitignore", ":(top)x", "build/lib.py", "data/train.csv", "train.py"}; !slices.Equal(got, want) {
		t.Errorf("sent\n%q, want\n%q", got, want)
	}
	for p, want := range map[string]string{"data/other.csv": ".gitignore:1", "build/lib.o": ".gitignore:2", "build/deep/x": ".gitignore:2", ":(top)y": ".gitignore:3", "build/lib.py": "", "data/train.csv": ""} {
		if got := f.Excluded(p); got != want {
			t.Errorf("Excluded(%q) = %q, want %q", p, got, want)
		}
	}
	_, empty := f.Find("empty")
	_, ignored := f.Find("build/empty")
	if !empty || ignored {
		t.Errorf("an empty folder is sent: %v; one that git ignores: %v", empty, ignored)
	}
}

// Scan respects the exclude files of the repository and of the user.
func TestExcludeFilesOfGitApply(t *testing.T) {
	global := filepath.Join(t.TempDir(), "ignore")
	write(t, filepath.Dir(global), map[string]string{"ignore": "# mine\n*.ckpt\n"})
	ownConfig(t, "[core]\nexcludesFile = "+global+"\n")
	top := t.TempDir()
	git(t, top, "init", "-q")
	dir := filepath.Join(top, "project")
	write(t, top, map[string]string{".git/info/exclude": "big/\n"})
	write(t, dir, map[string]string{"big/x": "", "a.ckpt": "", "train.py": "", "keep.ckpt": "", ".plxignore": "!/keep.ckpt\n"})
	f := scan(t, dir)
	if got, want := files(f.Manifest), []string{".plxignore", "keep.ckpt", "train.py"}; !slices.Equal(got, want) {
		t.Errorf("sent\n%q, want\n%q", got, want)
	}
	for p, want := range map[string]string{"big/x": filepath.Join(top, ".git/info/exclude") + ":1", "a.ckpt": global + ":2"} {
		if got := f.Excluded(p); got != want {
			t.Errorf("Excluded(%q) = %q, want %q", p, got, want)
		}
	}
}

// A nested repository has its own rules, and so has a repository in a folder
// that is not in one.
func TestNestedRepositoriesHaveTheirOwnRules(t *testing.T) {
	ownConfig(t, "[user]\nname = a\nemail = a@b\n[protocol \"file\"]\nallow = always\n")
	top := t.TempDir()
	library := filepath.Join(top, "library")
	write(t, library, map[string]string{".gitignore": "*.o\n", "lib.py": "", "lib.o": ""})
	git(t, library, "init", "-q")
	git(t, library, "add", ".")
	git(t, library, "commit", "-q", "-m", "x")
	dir := filepath.Join(top, "project")
	write(t, dir, map[string]string{".gitignore": "*.py\nno/\n", "a.py": "", "b": "", "no/clone/x": ""})
	git(t, dir, "init", "-q")
	git(t, dir, "submodule", "--quiet", "add", library, "module")
	write(t, dir, map[string]string{"module/new.py": "", "module/new.o": "", "clone/x.py": "", "clone/.gitignore": "y\n", "clone/y": ""})
	git(t, filepath.Join(dir, "clone"), "init", "-q")
	git(t, filepath.Join(dir, "no", "clone"), "init", "-q")
	want := []string{".gitignore", ".gitmodules", "b", "clone/.gitignore", "clone/x.py", "module/.gitignore", "module/lib.py", "module/new.py"}
	if got := files(scan(t, dir).Manifest); !slices.Equal(got, want) {
		t.Errorf("sent\n%q, want\n%q", got, want)
	}
	want = []string{"library/.gitignore", "library/lib.py"}
	for _, p := range []string{".gitignore", ".gitmodules", "b", "clone/.gitignore", "clone/x.py", "module/.gitignore", "module/lib.py", "module/new.py"} {
		want = append(want, "project/"+p)
	}
	if got := files(scan(t, top).Manifest); !slices.Equal(got, want) {
		t.Errorf("sent of the folder of both\n%q, want\n%q", got, want)
	}
}

// If git fails, plx interprets the .gitignore files itself, and adds a note.
func TestPlxReadsPatternsIfGitFails(t *testing.T) {
	ownConfig(t, "")
	dir := t.TempDir()
	write(t, dir, map[string]string{".git/HEAD": "", ".gitignore": "*.o\n", "a.o": "", "a": ""})
	f := scan(t, dir)
	if got, want := files(f.Manifest), []string{".gitignore", "a"}; !slices.Equal(got, want) {
		t.Errorf("sent\n%q, want\n%q", got, want)
	}
	if n := strings.Join(f.Notes(), "|"); !strings.Contains(n, "not a git repository") || !strings.Contains(n, "plx reads the .gitignore files itself") {
		t.Errorf("notes: %q", n)
	}
	t.Setenv("PATH", "")
	if f := scan(t, dir); len(f.Notes()) != 0 || len(files(f.Manifest)) != 2 {
		t.Errorf("without git: sent %q, notes %q", files(f.Manifest), f.Notes())
	}
}

// In a git hook, variables such as GIT_DIR name another repository; Scan
// ignores them.
func TestVariablesOfGitHooksAreIgnored(t *testing.T) {
	ownConfig(t, "")
	other, dir := t.TempDir(), t.TempDir()
	git(t, other, "init", "-q")
	git(t, dir, "init", "-q")
	write(t, other, map[string]string{".git/info/exclude": "b\n"})
	write(t, dir, map[string]string{".gitignore": "a\n", "a": "", "b": ""})
	t.Setenv("GIT_DIR", filepath.Join(other, ".git"))
	t.Setenv("GIT_INDEX_FILE", filepath.Join(other, "index"))
	if got, want := files(scan(t, dir).Manifest), []string{".gitignore", "b"}; !slices.Equal(got, want) {
		t.Errorf("sent\n%q, want\n%q", got, want)
	}
}

// If the user names a folder that git ignores as a whole, it is sent; only
// patterns for the files in it apply.
func TestIgnoredFolderIsSentIfNamed(t *testing.T) {
	ownConfig(t, "")
	top := t.TempDir()
	git(t, top, "init", "-q")
	write(t, top, map[string]string{".gitignore": "dist/\n*.o\n", "dist/a": "", "dist/a.o": "", "dist/sub/b": ""})
	f := scan(t, filepath.Join(top, "dist"))
	if got, want := files(f.Manifest), []string{"a", "sub/b"}; !slices.Equal(got, want) {
		t.Errorf("sent\n%q, want\n%q", got, want)
	}
	if n := strings.Join(f.Notes(), "|"); !strings.Contains(n, filepath.Join(top, ".gitignore")+":1 excludes the folder itself") {
		t.Errorf("notes: %q", n)
	}
}

// If .plxignore includes a folder that git ignores, the files in it are sent
// too.
func TestPlxignoreIncludesWhatGitIgnores(t *testing.T) {
	ownConfig(t, "")
	dir := t.TempDir()
	write(t, dir, map[string]string{".gitignore": "data/\n*.log\n", "data/a": "", "data/x.log": "", "data/sub/b": "", "data/sub/c": "", "a.log": "", "data/c.log": "",
		".plxignore": "!data/\n!c.log\nb\n"})
	git(t, dir, "init", "-q")
	git(t, dir, "add", "-f", "data/a")
	want := []string{".gitignore", ".plxignore", "data/a", "data/c.log", "data/sub/c"}
	if got := files(scan(t, dir).Manifest); !slices.Equal(got, want) {
		t.Errorf("sent\n%q, want\n%q", got, want)
	}
}

// randomTree is a repository with random file names and random patterns.
type randomTree struct {
	files          map[string]string // content by path, including .gitignore files
	tracked        []string
	global, within string // contents of the user's and of the repository's exclude file
	below          string // folder to scan, relative to the root; "": the root
}

var (
	someWords    = []string{"a", "b", "ab", "c.txt", "b.txt", "a b", "x[1]", "#x", "!y", "data", "é", `q\r`, "-n", ":(top)z", "A"}
	somePatterns = []string{"a", "b", "*.txt", "a/", "/a", "/b/", "a/b", "a/*", "**/b", "a/**", "a/**/b", "**", "*", "?b", "[ab]", "[!a]b", "[^a]b",
		"x\\[1]", "\\#x", "\\!y", "a b ", "a\\ b", "data/", "*/", "/*", "**/", "a*", "*b*", "b.t?t", "[a-c].txt", "# text", "", "/a/b/", "/*/b", "b/*.txt",
		"é", "?", "[[:alpha:]]", "**/a/**", "a**b", "***", "*/*/b", "[", "[a", "a\\", "q\\\\r", ":(top)z", "-n", "f.txt", "b0", "/**/b1", "a\t", "*a/**/", "./a", "a//b",
		"a/**/", "/data/**/", "b/**/*", "a/a**", "a\\\\ ", "a\\  ", "a \r", "[]a]", "[a-]", "[\\]a]", "[[:alpha]", "[[:none:]]", "a[/]b", "a/[!x]", "**/a/", "a**/b", "\\a", "*\\*", "/", "a/b/", "[^]b]*"}
)

func newRandomTree(r *rand.Rand) (tree randomTree) {
	tree.files = map[string]string{}
	lines := func() string {
		var lines []string
		for range 1 + r.IntN(5) {
			line := somePatterns[r.IntN(len(somePatterns))]
			if r.IntN(3) == 0 && line != "" {
				line = "!" + line
			}
			lines = append(lines, line)
		}
		return strings.Join(lines, "\n") + "\n"
	}
	var folders []string
	for range 3 + r.IntN(12) {
		var elements []string
		for range 1 + r.IntN(4) {
			elements = append(elements, someWords[r.IntN(len(someWords))])
		}
		folder := strings.Join(elements, "/")
		for _, name := range []string{"/f.txt", "/b" + fmt.Sprint(r.IntN(3))} {
			tree.files[folder+name] = "x"
			if r.IntN(5) == 0 {
				tree.tracked = append(tree.tracked, folder+name)
			}
		}
		folders = append(folders, strings.Join(elements[:r.IntN(len(elements)+1)], "/"))
	}
	for _, folder := range folders[:1+r.IntN(3)] {
		tree.files[filepath.Join(folder, ".gitignore")] = lines()
	}
	if r.IntN(4) == 0 {
		tree.global = lines()
	}
	if r.IntN(4) == 0 {
		tree.within = lines()
	}
	if r.IntN(3) == 0 {
		tree.below = folders[0]
	}
	return tree
}

// make creates the repository in the folder dir.
func (tree randomTree) make(t *testing.T, dir, global string) {
	t.Helper()
	write(t, dir, tree.files)
	write(t, dir, map[string]string{".git/info/exclude": tree.within, ".git/HEAD": "ref: refs/heads/main\n", ".git/objects/": "", ".git/refs/": ""})
	write(t, filepath.Dir(global), map[string]string{filepath.Base(global): tree.global})
	if len(tree.tracked) > 0 {
		git(t, dir, append([]string{"--literal-pathspecs", "add", "-f", "--"}, tree.tracked...)...)
	}
}

func (tree randomTree) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "below %q, global %q, exclude %q, tracked %q\n", tree.below, tree.global, tree.within, tree.tracked)
	for name, content := range tree.files {
		if filepath.Base(name) == ".gitignore" {
			fmt.Fprintf(&b, "%s: %q\n", name, content)
		}
	}
	return b.String()
}

// Scan includes the same files as git in folders with random names and
// patterns.
func TestScanExcludesLikeGit(t *testing.T) { compareWithGit(t, 25) }

// compareWithGit compares the files that Scan includes with those that git
// lists, for random repositories. It also compares plx's own interpretation of
// patterns, which Scan uses if git cannot be run.
func compareWithGit(t *testing.T, trees int) {
	global := filepath.Join(t.TempDir(), "ignore")
	ownConfig(t, "[core]\nexcludesFile = "+global+"\n")
	r := rand.New(rand.NewPCG(1, 2))
	top := t.TempDir()
	for i := range trees {
		tree := newRandomTree(r)
		root := filepath.Join(top, strconv.Itoa(i))
		tree.make(t, root, global)
		dir := filepath.Join(root, tree.below)
		want := listed(t, dir)
		f := scan(t, dir)
		if got := files(f.Manifest); len(f.Notes()) == 0 && !slices.Equal(got, want) {
			t.Fatalf("tree %d: sent\n%q\ngit would send\n%q\n%s", i, got, want, tree)
		}
		if differ := tree.ownDiffers(t, root, global); len(differ) > 0 {
			t.Fatalf("tree %d, without git:\n%s\n%s", i, strings.Join(differ, "\n"), tree)
		}
		if err := os.RemoveAll(root); err != nil {
			t.Fatal(err)
		}
	}
}

// ownDiffers scans without git. It returns the files about which git, reading
// only .gitignore files, decides differently, with the deciding lines.
func (tree randomTree) ownDiffers(t *testing.T, root, global string) (differ []string) {
	t.Helper()
	write(t, root, map[string]string{".git/info/exclude": ""})
	write(t, filepath.Dir(global), map[string]string{filepath.Base(global): ""})
	if err := os.RemoveAll(filepath.Join(root, ".git", "index")); err != nil {
		t.Fatal(err)
	}
	want := listed(t, root)
	path := os.Getenv("PATH")
	os.Setenv("PATH", "")
	f := scan(t, root)
	os.Setenv("PATH", path)
	got := files(f.Manifest)
	for _, p := range slices.Concat(got, want) {
		if slices.Contains(got, p) == slices.Contains(want, p) {
			continue
		}
		said, _ := exec.Command("git", "-C", root, "check-ignore", "--no-index", "-v", "-n", "./"+p).Output() // 1: nothing excludes it
		byGit, _, _ := strings.Cut(string(said), "\t")
		_, byGit, _ = strings.Cut(byGit, ":")
		_, byGit, _ = strings.Cut(byGit, ":")
		differ = append(differ, fmt.Sprintf("%q: git decides by %q, plx by %q", p, byGit, tree.line(f.Excluded(p))))
	}
	return differ
}

// line returns the line of a pattern file that at names as "FILE:LINE".
func (tree randomTree) line(at string) string {
	file, number, _ := strings.Cut(at, ":")
	n, _ := strconv.Atoi(number) // 0: nothing excludes it
	if n == 0 {
		return ""
	}
	return strings.Split(tree.files[file], "\n")[n-1]
}

// Outside of a repository each pattern matches as in git. Each pattern is
// tested alone against each path alone, so that no pattern hides another.
func TestPatternsMatchLikeGit(t *testing.T) {
	ownConfig(t, "")
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	paths := []string{"foo/f", "foo/d/f", "foo/d/", "foo/", "a", "sub/a", "c/", "sub/c/", "f/c", "a ", `a\ `, "ab", "x/ab/c", "x/y/z", "b/a.txt", "[a]", "A", "é", "d/b/c", "a-b", "]", `a\`}
	for _, p := range paths {
		write(t, dir, map[string]string{p: "x"})
	}
	for _, line := range append(slices.Clone(somePatterns), "foo/**/", "foo/**", "foo/*/", "**/foo", "x/a**", "[a-z]", "[!a-z]", "sub/a/", "c/", "/c", "**/c/", "d/**/c", `a\ `, `a\\ `, "[]]", "[]-a]") {
		write(t, dir, map[string]string{".gitignore": line + "\n"})
		var r rules
		if err := r.read(filepath.Join(dir, gitFile), gitFile, ""); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("git", "-C", dir, "check-ignore", "--no-index", "--stdin", "-z")
		cmd.Stdin = strings.NewReader(strings.ReplaceAll(strings.Join(paths, "\x00")+"\x00", "/\x00", "\x00"))
		out, _ := cmd.Output() // 1: it excludes nothing
		want := strings.Split(string(out), "\x00")
		for _, p := range paths {
			got := false // as in a scan, the first excluded parent folder excludes everything below it
			for i, c := range strings.TrimSuffix(p, "/") + "/" {
				if c == '/' && !got {
					_, got, _ = r.match(p[:i], i < len(p))
				}
			}
			if got != slices.Contains(want, strings.TrimSuffix(p, "/")) {
				t.Errorf("%q excludes %q: %v, git says %v", line, p, got, !got)
			}
		}
	}
}
