package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// go install works with go.mod alone, without a workspace. go.mod has no
// replace and no exclude, which go install refuses in a module that it
// downloads.
func TestGoInstall(t *testing.T) {
	bin := t.TempDir()
	install := exec.Command("go", "install", ".")
	install.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly -trimpath", "GOBIN="+bin, "CGO_ENABLED=0")
	output(t, install)
	if got := output(t, exec.Command(filepath.Join(bin, "plx"), "version")); !strings.HasPrefix(got, "plx ") {
		t.Errorf("the installed plx says %q", got)
	}
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if word, _, _ := strings.Cut(strings.TrimSpace(line), " "); word == "replace" || word == "exclude" {
			t.Errorf("go.mod has %q: go install of a version would refuse it", line)
		}
	}
}
