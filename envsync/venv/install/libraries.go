//go:build linux

package install

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// libraries makes an interpreter find its shared library. The interpreter's
// ELF run path may contain its old installation folder; libraries replaces
// that path in the program file.
func (f relocator) libraries(at string) error {
	if f.program == "" {
		return nil
	}
	file := filepath.Join(at, f.program)
	offset, old, err := runpath(file)
	if err != nil || old == "" {
		return err
	}
	paths := filepath.SplitList(old)
	for i, p := range paths {
		for _, name := range f.names {
			if in, err := filepath.Rel(name, p); err == nil && filepath.IsLocal(in) {
				paths[i] = "$ORIGIN/../" + in // The new path is relative to the program, which is in the folder bin.
			}
		}
	}
	fixed := strings.Join(paths, ":")
	if fixed == old {
		return nil
	}
	if len(fixed) > len(old) {
		return fmt.Errorf("%s looks for libraries in %s, and has no room for %s", f.program, old, fixed)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	copy(text[offset:], fixed+strings.Repeat("\x00", len(old)-len(fixed)))
	return rewrite(file, text)
}

// runpath returns the library search path (DT_RUNPATH or DT_RPATH) of a
// program, and its offset in the file. Both are zero if the program has none
// or is not an ELF file.
func runpath(file string) (offset uint64, paths string, err error) {
	program, err := elf.Open(file)
	if err != nil {
		return 0, "", nil // the file is not an ELF file; it may be a script
	}
	defer program.Close() // opened for reading: an error of Close does not matter
	dynamic := program.SectionByType(elf.SHT_DYNAMIC)
	if dynamic == nil || int(dynamic.Link) >= len(program.Sections) {
		return 0, "", nil // The program is linked statically, so it has no run path.
	}
	texts := program.Sections[dynamic.Link]
	all, err := texts.Data()
	if err != nil {
		return 0, "", err
	}
	runpaths, _ := program.DynValue(elf.DT_RUNPATH) // DynValue returns no error, because the section exists
	rpaths, _ := program.DynValue(elf.DT_RPATH)
	for _, at := range slices.Concat(runpaths, rpaths) {
		if at < uint64(len(all)) {
			path, _, _ := strings.Cut(string(all[at:]), "\x00")
			return texts.Offset + at, path, nil
		}
	}
	return 0, "", nil
}
