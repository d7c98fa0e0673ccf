package tree

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Pointers finds the files that git-lfs has not fetched, in a Folder of Scan
// and in one of Gather.
func TestPointersFindsGitLFSPointerFiles(t *testing.T) {
	dir := t.TempDir()
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("a", 64) + "\nsize 12345\n"
	write(t, dir, map[string]string{"model.pt": pointer, "sub/data.bin": pointer, "old.bin": "version https://hawser.github.com/spec/v1\n", "about.md": "# " + pointer,
		"long.txt": pointer + strings.Repeat("x", maxPointer), "empty": ""})
	want := []string{"model.pt", "old.bin", "sub/data.bin"}
	if got := scan(t, dir).Pointers(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	f, err := Gather(t.Context(), []string{filepath.Join(dir, "model.pt"), filepath.Join(dir, "sub"), filepath.Join(dir, "about.md")}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := f.Pointers(), []string{"model.pt", "sub/data.bin"}; !slices.Equal(got, want) {
		t.Errorf("copied: %q, want %q", got, want)
	}
}
