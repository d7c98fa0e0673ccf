package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What a snapshot would lack is refused, not left out.
func TestRead(t *testing.T) {
	known, err := os.ReadFile("../../../goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for added, complaint := range map[string]string{
		"":                                       "",
		"\nsnapcrafts:\n  - name: plx\n":         "field snapcrafts not found",
		"\nunknown: 1\n":                         "field unknown not found",
		"\nchecksum:\n  algorithm: md5\n":        "already defined",
		"\nmetadata:\n  maintainers: [nobody]\n": "field metadata not found",
	} {
		path := filepath.Join(t.TempDir(), "goreleaser.yaml")
		if err := os.WriteFile(path, append(bytes.Clone(known), added...), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := read(path)
		if complaint == "" && (err != nil || len(c.Builds) == 0) || complaint != "" && (err == nil || !strings.Contains(err.Error(), complaint)) {
			t.Errorf("with %q: %v", added, err)
		}
	}
	for old, new := range map[string]string{"algorithm: sha256": "algorithm: md5", "artifacts: binary": "artifacts: archive"} {
		path := filepath.Join(t.TempDir(), "goreleaser.yaml")
		if err := os.WriteFile(path, bytes.Replace(known, []byte(old), []byte(new), 1), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := read(path); err == nil {
			t.Errorf("%s was taken", new)
		}
	}
}

// A template names what goreleaser knows, and nothing else.
func TestFill(t *testing.T) {
	s := &snapshot{version: "1.2.3", commit: time.Unix(1800000000, 0)}
	p := program{os: "linux", arch: "arm64"}
	got, err := s.fill("plx_{{ .Version }}_{{ .Os }}_{{ .Arch }} {{ .CommitDate }} {{ .CommitTimestamp }}", p)
	if want := "plx_1.2.3_linux_arm64 2027-01-15T08:00:00Z 1800000000"; err != nil || got != want {
		t.Errorf("got %q, want %q: %v", got, want, err)
	}
	for _, wrong := range []string{"{{ .Versoin }}", "{{ .Version"} {
		if got, err := s.fill(wrong, p); err == nil {
			t.Errorf("%s: %q", wrong, got)
		}
	}
}

// An archive whose pattern matches no file is not made.
func TestTarball(t *testing.T) {
	dir := t.TempDir()
	program := program{path: filepath.Join(dir, "plx")}
	if err := os.WriteFile(program.path, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "plx.1.gz"), []byte("page"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := &snapshot{commit: time.Unix(1800000000, 0)}
	page := file{Source: filepath.Join(dir, "*.gz"), Destination: "man", StripParent: true}
	var out bytes.Buffer
	if err := s.tarball(&out, archive{Wrap: "true", Files: []file{page, {Source: filepath.Join(dir, "*.md")}}}, program, "folder"); err == nil {
		t.Error("a file that is missing was left out")
	}
	out.Reset()
	if err := s.tarball(&out, archive{Wrap: "true", Files: []file{page}}, program, "folder"); err != nil {
		t.Fatal(err)
	}
	unpacked := gunzip(t, &out)
	for _, want := range []string{"folder/man/plx.1.gz", "folder/plx"} {
		header, err := unpacked.Next()
		if err != nil || header.Name != want || !header.ModTime.Equal(s.commit) {
			t.Errorf("%v, %v: want %s", header, err, want)
		}
	}
}

func gunzip(t *testing.T, packed *bytes.Buffer) *tar.Reader {
	t.Helper()
	r, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	return tar.NewReader(r)
}
