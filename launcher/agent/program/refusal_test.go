//go:build linux

package program

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/test/executable"
)

// elfFor returns the smallest ELF program that requires the given dynamic
// loader.
func elfFor(loader string) []byte {
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9))
	for _, field := range []any{
		uint16(2), uint16(62), uint32(1), // executable, x86-64
		uint64(0x400000), uint64(64), uint64(0), uint32(0), // entry point, offset of the program headers, no section headers
		uint16(64), uint16(56), uint16(1), uint16(64), uint16(0), uint16(0),
		uint32(3), uint32(4), uint64(120), uint64(0), uint64(0), // PT_INTERP at 120
		uint64(len(loader) + 1), uint64(len(loader) + 1), uint64(1),
	} {
		binary.Write(&b, binary.LittleEndian, field) // into memory
	}
	b.WriteString(loader + "\x00")
	return b.Bytes()
}

func TestMissingInterpreter(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct {
		file string
		want string // "": nothing is missing
	}{
		"loader":             {string(elfFor("/lib/ld-nowhere.so.2")), "its dynamic loader /lib/ld-nowhere.so.2 is not on this host"},
		"loader is there":    {string(elfFor("/bin/sh")), ""},
		"cut ELF":            {string(elfFor("/lib/ld-nowhere.so.2")[:125]), ""},
		"script":             {"#!/bin/sh\nexit\n", ""},
		"script, no shell":   {"#!/nowhere/sh -e\n", "its interpreter /nowhere/sh is not on this host"},
		"Windows":            {"#!/bin/sh\r\nexit\r\n", "Windows line ends"},
		"Windows, env":       {"#!/usr/bin/env python3\r\n", `asks for "python3\r"`},
		"Windows, options":   {"#!/bin/sh -e\r\n", ""},
		"Windows, env -S":    {"#!/usr/bin/env -S\r\n", ""},
		"nothing behind #!":  {"#! \r\n", ""},
		"text":               {"echo hi\r\n", ""},
		"empty":              {"", ""},
		"a line without end": {"#!/nowhere/" + strings.Repeat("x", 300), ""},
	} {
		path := filepath.Join(dir, "program")
		if err := executable.Write(path, []byte(test.file), 0o700); err != nil {
			t.Fatal(err)
		}
		if got := missingInterpreter(path); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func FuzzMissingInterpreter(f *testing.F) {
	f.Add(elfFor("/lib/ld-nowhere.so.2"))
	f.Add([]byte("#!/usr/bin/env x\r\n"))
	path := filepath.Join(f.TempDir(), "program")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if why := missingInterpreter(path); len(why) > 2*maxLoader {
			t.Errorf("says %d bytes", len(why))
		}
	})
}

func TestTooLongValueIsNamedButNotPrinted(t *testing.T) {
	long := strings.Repeat("q", 32*os.Getpagesize())
	for name, test := range map[string]struct {
		c    Command
		want string
	}{
		"variable": {Command{Argv: []string{"train", "a"}, added: 1, env: []string{"A=b", "DATA=" + long}},
			fmt.Sprintf("train: the variable DATA has %d bytes, but the kernel accepts less than", len(long)+5)},
		"argument":     {Command{Argv: []string{"train", "a", long}, added: 1}, "train: argument 2 has"},
		"after set-up": {Command{Argv: []string{"bash", "-c", "x", "a", long}, added: 3}, "train: argument 2 has"},
		"set-up":       {Command{Argv: []string{"bash", "-c", long, "a"}, added: 3}, "train: --setup has"},
		"all of them": {Command{Argv: []string{"train", long[:100]}, added: 1, env: []string{"A=b"}},
			"have 111 bytes in 3 strings"},
	} {
		test.c.name = "train"
		err := test.c.Run(func() error { return unix.E2BIG })
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "qq") {
			t.Errorf("%s: %.200v, want %q", name, err, test.want)
		}
	}
}
