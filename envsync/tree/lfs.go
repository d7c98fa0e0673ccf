package tree

import (
	"io"
	"strings"
)

// maxPointer is more than a pointer of git-lfs has, in bytes; lfsVersions are how one begins.
const maxPointer = 1024

var lfsVersions = []string{"version https://git-lfs.github.com/spec/", "version http://git-media.io/", "version https://hawser.github.com/spec/"}

// Pointers returns the paths of files that git-lfs has not fetched: each has only the hash of
// its content.
func (f *Folder) Pointers() (paths []string) {
	for _, e := range f.Entries {
		if e.Kind == File && e.Size < maxPointer && isPointer(f.file(e)) {
			paths = append(paths, e.Path)
		}
	}
	return paths
}

func isPointer(file string) bool {
	f, _, err := openFile(file)
	if err != nil {
		return false // who sends it reports why
	}
	defer f.Close() // only read
	text, _ := io.ReadAll(io.LimitReader(f, maxPointer))
	for _, version := range lfsVersions {
		if strings.HasPrefix(string(text), version) {
			return true
		}
	}
	return false
}
