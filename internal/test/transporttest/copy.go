package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/transport"
)

// testCopy checks that files arrive completely, under the given name.
func testCopy(t *testing.T, open func(*testing.T) transport.Transport) {
	conn := opened(t, open)
	names := []string{"plain", "with space", "-dash", "quote'\"$`\\!", "line\nbreak", strings.Repeat("n", 250), "ü\xff", "*"}
	for i, name := range names {
		t.Run(fmt.Sprintf("name %d", i), func(t *testing.T) {
			copyAndCheck(t, conn, filepath.Join(t.TempDir(), name), noise(3, 1000))
		})
	}
	for _, size := range []int{0, 1, 32768, 32769, 3 << 20} {
		t.Run(fmt.Sprintf("size %d", size), func(t *testing.T) {
			copyAndCheck(t, conn, filepath.Join(t.TempDir(), "f"), noise(4, size))
		})
	}
}

// copyAndCheck copies data to path and checks the resulting file.
func copyAndCheck(t *testing.T, conn transport.Transport, path string, data []byte) {
	t.Helper()
	// Hide all methods but Read, because Copy must not depend on the length of
	// the source or on Seek.
	source := struct{ io.Reader }{bytes.NewReader(data)}
	if err := conn.Copy(t.Context(), source, path); err != nil {
		t.Fatalf("copy: %v", err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes arrived of %d, or others; %v", len(got), len(data), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v: others may read it; %v", info.Mode(), err)
	}
}

// testCopyFailure checks that a failed copy returns an error with the cause,
// and that no copy changes an existing file.
func testCopyFailure(t *testing.T, open func(*testing.T) transport.Transport) {
	conn := opened(t, open)
	broken := errors.New("the source is broken")
	for _, c := range []struct {
		name   string
		path   string
		source io.Reader
		want   error // the error that Copy must return; nil means that any error will do
	}{
		{"no folder", filepath.Join(t.TempDir(), "none", "f"), strings.NewReader("x"), fs.ErrNotExist},
		{"onto a folder", t.TempDir(), strings.NewReader("x"), nil},
		{"onto a file", newFile(t), strings.NewReader("x"), nil},
		{"broken source", filepath.Join(t.TempDir(), "f"), io.MultiReader(strings.NewReader("x"), failing{broken}), broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := conn.Copy(t.Context(), c.source, c.path)
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) {
				t.Fatalf("copy: %v, want %v", err, c.want)
			}
			if !strings.Contains(err.Error(), c.path) {
				t.Errorf("%v: the path is missing", err)
			}
			if data, err := os.ReadFile(c.path); c.name == "onto a file" && string(data) != "before" {
				t.Errorf("the file that was there is now %q, %v", data, err)
			}
		})
	}
	t.Run("cancel", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		source := io.MultiReader(strings.NewReader("x"), canceller{cancel}, neverEnds(t))
		within(t, "the return after cancel", func() {
			if err := conn.Copy(ctx, source, filepath.Join(t.TempDir(), "f")); !errors.Is(err, context.Canceled) {
				t.Errorf("copy: %v, want %v", err, context.Canceled)
			}
		})
	})
}

// canceller is a reader that cancels a context when it is read.
type canceller struct{ cancel func() }

func (c canceller) Read([]byte) (int, error) {
	c.cancel()
	return 0, io.EOF
}

// newFile returns the path of a new file with some content.
func newFile(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
