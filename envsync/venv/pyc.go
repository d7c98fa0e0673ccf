package venv

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// header is the length in bytes of the header of a .pyc file: magic number,
// flags, and, if the flags are 0, the modification time and size of the
// source.
const header = 16

// Source returns the source file of a .pyc file, and the modification time and
// size that the source must have for Python to use the .pyc file. It returns
// false if Python does not validate the .pyc file by the source's time and
// size.
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
	defer f.Close() // opened for reading: an error of Close does not matter
	head := make([]byte, header)
	if _, err := io.ReadFull(f, head); err != nil || binary.LittleEndian.Uint32(head[4:]) != 0 {
		return "", modified, 0, false
	}
	source = filepath.Join(filepath.Dir(filepath.Clean(dir)), module+".py")
	return source, time.Unix(int64(binary.LittleEndian.Uint32(head[8:])), 0), binary.LittleEndian.Uint32(head[12:]), true
}

// stale reports whether Python would ignore a .pyc file because its source has
// changed. A stale .pyc file must not be sent: on a host the source gets the
// modification time recorded in the .pyc file, so Python would use the
// outdated code.
func stale(compiled string) bool {
	source, modified, size, ok := Source(compiled)
	if !ok {
		return false
	}
	info, err := os.Stat(source)
	return err != nil || uint32(info.ModTime().Unix()) != uint32(modified.Unix()) || uint32(info.Size()) != size
}
