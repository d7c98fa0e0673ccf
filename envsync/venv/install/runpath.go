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

// libraries makes an interpreter find its own library, which it may look for under the
// folder's old name. The new path replaces the old one in the program's bytes.
func (f fixer) libraries(at string) error {
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
				paths[i] = "$ORIGIN/../" + in // the program is in bin
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

// runpath returns where a program looks for libraries, and the offset of that text in the
// file. Both are zero for a program that does not say, and for what is no program.
func runpath(file string) (offset uint64, paths string, err error) {
	program, err := elf.Open(file)
	if err != nil {
		return 0, "", nil // a script
	}
	defer program.Close() // only read
	dynamic := program.SectionByType(elf.SHT_DYNAMIC)
	if dynamic == nil || int(dynamic.Link) >= len(program.Sections) {
		return 0, "", nil // a static program
	}
	texts := program.Sections[dynamic.Link]
	all, err := texts.Data()
	if err != nil {
		return 0, "", err
	}
	runpaths, _ := program.DynValue(elf.DT_RUNPATH) // the section exists
	rpaths, _ := program.DynValue(elf.DT_RPATH)
	for _, at := range slices.Concat(runpaths, rpaths) {
		if at < uint64(len(all)) {
			path, _, _ := strings.Cut(string(all[at:]), "\x00")
			return texts.Offset + at, path, nil
		}
	}
	return 0, "", nil
}
