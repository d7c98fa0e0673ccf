package kernels

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed *.ptx
var files embed.FS

// The least versions of a GPU and its driver that can run the PTX files, as
// the first lines of the files state.
const (
	LeastCapability = 70   // compute capability of the GPU; 70 means 7.0
	LeastCUDA       = 9000 // the NVIDIA driver must support at least this CUDA version; PTX 6.0 came with CUDA 9.0
)

// Module is one PTX file with several kernels.
type Module struct {
	Name string // file name without its extension
	PTX  string
}

// Modules returns all PTX files, sorted by name.
func Modules() []Module {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		panic(err) // cannot fail, because the files are embedded in the program
	}
	var all []Module
	for _, e := range entries {
		text, err := files.ReadFile(e.Name())
		if err != nil {
			panic(err)
		}
		all = append(all, Module{Name: strings.TrimSuffix(e.Name(), ".ptx"), PTX: string(text)})
	}
	return all
}

// Hash returns the hexadecimal SHA-256 of the names and contents of all
// modules. Two programs with the same hash use the same kernels.
func Hash() string {
	h := sha256.New()
	for _, m := range Modules() {
		fmt.Fprintf(h, "%s %d\n%s", m.Name, len(m.PTX), m.PTX) // writing to a hash returns no error
	}
	return hex.EncodeToString(h.Sum(nil))
}
