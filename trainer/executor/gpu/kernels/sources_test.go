package kernels

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each PTX file contains the hash of the CUDA sources that it was compiled
// from (scripts/make-kernels writes it). The test fails if the sources have
// changed since.
func TestPTXContainsHashOfItsSources(t *testing.T) {
	var names []string
	for _, pattern := range []string{"*.cu", "*.cuh"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(found)
		names = append(names, found...)
	}
	all := sha256.New() // of what sha256sum prints
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(all, "%x  ./%s\n", sha256.Sum256(text), name)
	}
	if len(names) == 0 && os.Getenv("PLX_TEST_GPU") != "" {
		t.Skip("the sources are not on this machine")
	}
	want := fmt.Sprintf("\n// plx's kernels, from sources with the hash %x\n", all.Sum(nil)[:16])
	for _, m := range Modules() {
		if !strings.Contains(m.PTX, want) {
			t.Errorf("%s.ptx is of other sources: run make kernels", m.Name)
		}
	}
}
