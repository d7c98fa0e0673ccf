package venv

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// header is the length of the first part of a compiled file: a number of the version,
// flags, and for a file without flags the time and the size of its source.
const header = 16

// Source returns the source of a compiled file, and the time that the source must have
// for the compiled file to be used. False: the file is none that a time makes valid.
func Source(compiled string) (source string, modified time.Time, size uint32, ok bool) {
	dir, base := filepath.Split(compiled)
	module, _, found := strings.Cut(base, ".")
	if !found || filepath.Base(dir) != "__pycache__" {
		return "", modified, 0, false
	}
	f, err := os.Open(compiled)
	if err != nil {
		return "", modified, 0, false
	}
	defer f.Close() // only read
	head := make([]byte, header)
	if _, err := io.ReadFull(f, head); err != nil || binary.LittleEndian.Uint32(head[4:]) != 0 {
		return "", modified, 0, false
	}
	source = filepath.Join(filepath.Dir(filepath.Clean(dir)), module+".py")
	return source, time.Unix(int64(binary.LittleEndian.Uint32(head[8:])), 0), binary.LittleEndian.Uint32(head[12:]), true
}

// stale reports whether Python would not use a compiled file. On a host the source gets
// the time that the compiled file has noted, so a stale one must not get there.
func stale(compiled string) bool {
	source, modified, size, ok := Source(compiled)
	if !ok {
		return false
	}
	info, err := os.Stat(source)
	return err != nil || uint32(info.ModTime().Unix()) != uint32(modified.Unix()) || uint32(info.Size()) != size
}
