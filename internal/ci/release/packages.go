package main

import (
	"context"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// packages makes the packages of the Linux distributions.
func (s *snapshot) packages(context.Context) error {
	for _, k := range s.NFPMs {
		for _, p := range s.of(k.IDs) {
			for _, format := range k.Formats {
				if err := s.pack(k, p, format); err != nil {
					return fmt.Errorf("%s for %s: %w", format, p.target(), err)
				}
			}
		}
	}
	return nil
}

// variant is the oldest processor of an architecture, which go build builds for.
var variant = map[string]string{"amd64": "v1"}

func (s *snapshot) pack(k packages, p program, format string) error {
	name, err := s.fill(k.FileName, p)
	if err != nil {
		return err
	}
	date, err := s.fill(k.MTime, p)
	if err != nil {
		return err
	}
	mtime, err := time.Parse(time.RFC3339, date)
	if err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	contents := files.Contents{{
		Source: p.path, Destination: path.Join(k.Bindir, filepath.Base(p.path)),
		FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: mtime},
	}}
	for _, c := range k.Contents { // a packager changes its own copy
		c := *c
		c.FileInfo = &files.ContentFileInfo{}
		contents = append(contents, &c)
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: k.PackageName, Arch: p.arch, Platform: p.os, Version: s.version,
		Section: k.Section, Priority: k.Priority, Maintainer: k.Maintainer, Description: k.Description,
		Homepage: k.Homepage, License: k.License, MTime: mtime,
		Overridables: nfpm.Overridables{Contents: contents, Deb: nfpm.Deb{ArchVariant: variant[p.arch]}},
	})
	return s.create(name+"."+format, func(w io.Writer) error { return packager.Package(info, w) })
}
