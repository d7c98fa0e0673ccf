package venv

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Request describes the environment that a host is to install. plx sends it to
// the host as JSON.
type Request struct {
	Manifest string   `json:"manifest"` // ID of the environment's manifest (list of files), see tree.Manifest.ID
	Names    []string `json:"names"`    // absolute paths, on the sending machine, under which the environment's files may refer to the environment
	Links    []string `json:"links"`    // paths in the environment that become links to the interpreter

	Python Python `json:"python"` // interpreter for which the packages were installed
	// Interpreter is the path of the interpreter on the hosts. It is absolute
	// if Base is empty, and otherwise relative to the folder that Base
	// describes.
	Interpreter string `json:"interpreter"`
	// Base is the ID of the manifest (list of files) of the interpreter's
	// installation folder. "" means that the hosts already have an
	// interpreter.
	Base      string   `json:"base,omitempty"`
	BaseNames []string `json:"baseNames,omitempty"` // absolute paths, on the sending machine, under which the interpreter's files may refer to their folder
	// Loader is the path of the interpreter's ELF loader, such as
	// /lib64/ld-linux-x86-64.so.2. "" means that the interpreter needs none.
	Loader string `json:"loader,omitempty"`
	// Stored is true if the file contents are in the host's content store, so
	// the host can install what is missing.
	Stored bool `json:"stored,omitempty"`
}

// Folder returns the base name of the folder in which the environment is
// installed. Equal environments have the same name and share the folder.
func (r Request) Folder() string {
	return name("environment", r.Manifest, r.Base, r.Interpreter, strings.Join(r.Names, "\x00"), strings.Join(r.Links, "\x00"))
}

// BaseFolder returns the base name of the folder in which the interpreter is
// installed. It returns "" if the hosts already have an interpreter.
func (r Request) BaseFolder() string {
	if r.Base == "" {
		return ""
	}
	return name("interpreter", r.Base, strings.Join(r.BaseNames, "\x00"))
}

// layout is part of every folder name. It must change whenever plx changes how
// it installs environments, so that old folders are not reused.
const layout = "1"

// name returns a short folder name, the beginning of a SHA-256. It is short
// because the first line of a script contains the folder's path, and Linux
// reads only 127 or 255 bytes of that line.
func name(parts ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", append(parts, layout)))
	return hex.EncodeToString(sum[:10])
}
