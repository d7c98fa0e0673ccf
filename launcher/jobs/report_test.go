package jobs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/exit"
)

func TestReportErrorNamesTheFileOfTheUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "r.html")
	err := writeReport(path, []byte("page"))
	if want := "write the report to " + path + ": no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("missing folder: %v, want %s", err, want)
	}
	if want := "its folder does not exist: mkdir -p " + filepath.Dir(path); exit.Hint(err) != want {
		t.Errorf("missing folder: hint %q, want %q", exit.Hint(err), want)
	}

	path = t.TempDir() // a folder, which the report cannot replace
	if err := writeReport(path, []byte("page")); err == nil || !strings.HasPrefix(err.Error(), "write the report to "+path+": ") || strings.Contains(err.Error(), "-1") {
		t.Errorf("path of a folder: %v", err)
	}

	path = filepath.Join(t.TempDir(), "r.html")
	if err := writeReport(path, []byte("page")); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); string(text) != "page" {
		t.Errorf("%q, %v", text, err)
	}
}
