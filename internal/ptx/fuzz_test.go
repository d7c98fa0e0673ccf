package ptx_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/ptx"
	"github.com/plx-run/plx/internal/ptx/syntax"
)

// FuzzLaunch runs the kernels of random texts: whatever they do, Parse and
// Launch return an error that they know.
func FuzzLaunch(f *testing.F) {
	files, err := filepath.Glob("testdata/*.ptx")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, kernel := range strings.SplitAfter(string(text), "\n}\n") { // small texts are found more in
			f.Add(".version 6.0\n.target sm_70\n" + kernel)
		}
	}
	for _, test := range planted {
		f.Add(head + test.body + "\nret;\n}\n")
	}
	for _, test := range correct {
		f.Add(head + test.body + "\nret;\n}\n")
	}
	f.Fuzz(func(t *testing.T, text string) {
		module, err := ptx.Options{Races: true, StepLimit: 1 << 12}.Parse(text)
		var mistake *syntax.Error
		if err != nil {
			if !errors.As(err, &mistake) {
				t.Fatal(err)
			}
			return
		}
		names := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n(){};,", r) })
		for _, name := range names[:min(len(names), 100)] {
			k, err := module.Kernel(name)
			if err != nil {
				continue
			}
			launchAny(t, k)
		}
	})
}

// launchAny runs a kernel whose parameters are addresses of 256 bytes, as far
// as they look like addresses.
func launchAny(t *testing.T, k *ptx.Kernel) {
	t.Helper()
	m := ptx.NewMemory(1 << 20)
	p := make([]byte, k.ParamBytes())
	for _, param := range k.Params() {
		if param.Size != 8 {
			continue
		}
		at, err := m.Alloc(256)
		if err != nil {
			break // there are many
		}
		if err := m.Fill8(at, 1, 256); err != nil {
			t.Fatal(err)
		}
		copy(p[param.Offset:], params(at))
	}
	var fault *ptx.Fault
	if err := k.Launch(m, [3]uint32{2, 1, 1}, [3]uint32{40, 1, 1}, 64, p); err != nil && !errors.As(err, &fault) && !strings.Contains(err.Error(), "variable") {
		t.Fatal(err)
	}
}
