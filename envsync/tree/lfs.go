package tree

import (
	"io"
	"strings"
)

// maxPointer is an upper bound on the size in bytes of a git-lfs pointer file.
// lfsVersions are the texts with which such a file begins.
const maxPointer = 1024

var lfsVersions = []string{"version https://git-lfs.github.com/spec/", "version http://git-media.io/", "version https://hawser.github.com/spec/"}

// Pointers returns the paths of git-lfs pointer files: the real content of
// these files has not been fetched with "git lfs pull".
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
		return false // A file that cannot be opened is no pointer: the code that sends the file reports the error.
	}
	defer f.Close() // only read: an error of Close does not matter
	text, _ := io.ReadAll(io.LimitReader(f, maxPointer))
	for _, version := range lfsVersions {
		if strings.HasPrefix(string(text), version) {
			return true
		}
	}
	return false
}
