package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// make build sets version, commit and date with -ldflags. In a source archive
// without git data, the commit is "unknown".
func TestMakeBuildSetsTheVersion(t *testing.T) {
	head := strings.Fields(output(t, exec.Command("git", "show", "-s", "--format=%H %cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "HEAD")))
	for folder, want := range map[string]string{
		".":         " -X main.commit=" + head[0] + " -X main.date=" + head[1] + `"`,
		archived(t): ` -X main.version=dev -X main.commit=unknown -X main.date="`,
	} {
		if got := output(t, exec.Command("make", "--dry-run", "-C", folder, "build")); !strings.Contains(got, want) {
			t.Errorf("make build in %s lacks %s:\n%s", folder, want, got)
		}
	}
}

// archived creates a directory with the Makefile inside another git
// repository.
func archived(t *testing.T) string {
	t.Helper()
	around := t.TempDir()
	output(t, exec.Command("git", "-C", around, "init", "--quiet"))
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(around, "plx")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "Makefile"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	return folder
}

// make runs the tests with the race detector even if the environment sets
// CGO_ENABLED=0.
func TestMakeAllowsCgo(t *testing.T) {
	cmd := exec.Command("make", "--silent", "-f", "Makefile", "-f", "-", "show")
	cmd.Stdin = strings.NewReader("show: ; @echo $${CGO_ENABLED-unset}\n")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if got := output(t, cmd); got != "unset\n" {
		t.Errorf("CGO_ENABLED is %q in recipes", got)
	}
}

// A commit set by the linker takes precedence over the one that go build
// records.
func TestVersionLine(t *testing.T) {
	defer func(v, c, d string) { version, commit, date = v, c, d }(version, commit, date)
	version, commit, date = "v1.2.3", "abc", "2026-01-02T03:04:05Z"
	if got, want := versionLine(), "plx v1.2.3 (commit abc, 2026-01-02T03:04:05Z, go"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q and more", got, want)
	}
	version, commit, date = "dev", "unknown", ""
	if got, want := versionLine(), "plx dev (commit unknown, go"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q and more", got, want)
	}
}

// output runs a program and returns what it prints.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	if cmd.Env == nil {
		cmd.Env = append(os.Environ(), "TZ=UTC")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}
