package venv

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Request tells a host which environment to install.
type Request struct {
	Manifest string   `json:"manifest"` // content hash of the environment's manifest
	Names    []string `json:"names"`    // absolute paths by which its files may name it
	Links    []string `json:"links"`    // paths in it that are links to the interpreter

	Python Python `json:"python"` // for which its packages were installed
	// Interpreter is the absolute path of the interpreter on the hosts. If Base is set it
	// is relative to that folder.
	Interpreter string `json:"interpreter"`
	// Base is the content hash of the manifest of the folder with the interpreter; "":
	// the hosts have it.
	Base      string   `json:"base,omitempty"`
	BaseNames []string `json:"baseNames,omitempty"` // as Names, for Base
	// Loader is the program that loads the interpreter, such as
	// /lib64/ld-linux-x86-64.so.2; "": it needs none.
	Loader string `json:"loader,omitempty"`
	// Stored tells that the contents are on the host: what is not installed is to be
	// installed.
	Stored bool `json:"stored,omitempty"`
}

// Folder returns the name of the folder of the installed environment, which equal
// environments share.
func (r Request) Folder() string {
	return name("environment", r.Manifest, r.Base, r.Interpreter, strings.Join(r.Names, "\x00"), strings.Join(r.Links, "\x00"))
}

// BaseFolder returns the name of the folder of the interpreter, or "" if the hosts have
// one.
func (r Request) BaseFolder() string {
	if r.Base == "" {
		return ""
	}
	return name("interpreter", r.Base, strings.Join(r.BaseNames, "\x00"))
}

// layout is part of the names: a new one for every change of what is installed.
const layout = "1"

// name names a folder shortly: Linux reads 127 bytes of the first line of a script, or
// 255.
func name(parts ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", append(parts, layout)))
	return hex.EncodeToString(sum[:10])
}
