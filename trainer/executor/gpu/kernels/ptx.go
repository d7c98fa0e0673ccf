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

// What the PTX of all modules demands, as its first lines say.
const (
	LeastCapability = 70   // compute capability of the GPU, 70 for 7.0
	LeastCUDA       = 9000 // newest CUDA version that the driver knows: PTX 6.0 came with CUDA 9.0
)

// Module is one PTX file.
type Module struct {
	Name string // file name without its extension
	PTX  string
}

// Modules returns all PTX files, sorted by name.
func Modules() []Module {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		panic(err) // the files are part of the program
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

// Hash is the hexadecimal SHA-256 of the names and contents of all modules. Two
// programs with the same hash compute with the same kernels.
func Hash() string {
	h := sha256.New()
	for _, m := range Modules() {
		fmt.Fprintf(h, "%s %d\n%s", m.Name, len(m.PTX), m.PTX) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil))
}
