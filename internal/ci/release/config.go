package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/goreleaser/nfpm/v2/files"
	"go.yaml.in/yaml/v3"
)

// config is what a release of plx uses of goreleaser.yaml. Texts are templates.
type config struct {
	Version     int    `yaml:"version"`
	ProjectName string `yaml:"project_name"`
	Snapshot    struct {
		VersionTemplate string `yaml:"version_template"`
	} `yaml:"snapshot"`
	Before struct {
		Hooks []string `yaml:"hooks"`
	} `yaml:"before"`
	Builds   []build    `yaml:"builds"`
	Archives []archive  `yaml:"archives"`
	NFPMs    []packages `yaml:"nfpms"`
	SBOMs    []sbom     `yaml:"sboms"`
	Checksum struct {
		NameTemplate string `yaml:"name_template"`
		Algorithm    string `yaml:"algorithm"`
	} `yaml:"checksum"`
	Signs     []any `yaml:"signs"`     // a snapshot is not signed
	Changelog any   `yaml:"changelog"` // the text of a release on GitHub
}

// build is a program, for each of its platforms.
type build struct {
	ID      string   `yaml:"id"`
	Main    string   `yaml:"main"`
	Binary  string   `yaml:"binary"`
	Env     []string `yaml:"env"`
	GoOS    []string `yaml:"goos"`
	GoArch  []string `yaml:"goarch"`
	Flags   []string `yaml:"flags"`
	LDFlags []string `yaml:"ldflags"`
	ModTime string   `yaml:"mod_timestamp"`
	Hooks   struct {
		Post []string `yaml:"post"`
	} `yaml:"hooks"`
}

// archive is a form in which the programs of some builds are released.
type archive struct {
	ID      string   `yaml:"id"`
	IDs     []string `yaml:"ids"`
	Formats []string `yaml:"formats"`
	Name    string   `yaml:"name_template"`
	Wrap    string   `yaml:"wrap_in_directory"`
	Files   []file   `yaml:"files"`
}

// file is what an archive holds beside the program: the files that match Source.
type file struct {
	Source      string `yaml:"src"`
	Destination string `yaml:"dst"`
	StripParent bool   `yaml:"strip_parent"`
}

// UnmarshalYAML reads a file that is a pattern and nothing else, too.
func (f *file) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		return node.Decode(&f.Source)
	}
	type plain file
	return node.Decode((*plain)(f))
}

// packages are the packages of a Linux program.
type packages struct {
	ID          string         `yaml:"id"`
	IDs         []string       `yaml:"ids"`
	PackageName string         `yaml:"package_name"`
	FileName    string         `yaml:"file_name_template"`
	Formats     []string       `yaml:"formats"`
	Bindir      string         `yaml:"bindir"`
	Section     string         `yaml:"section"`
	Priority    string         `yaml:"priority"`
	Homepage    string         `yaml:"homepage"`
	Maintainer  string         `yaml:"maintainer"`
	License     string         `yaml:"license"`
	Description string         `yaml:"description"`
	MTime       string         `yaml:"mtime"`
	Contents    files.Contents `yaml:"contents"`
}

// sbom is a command that lists what each program is made of.
type sbom struct {
	ID        string   `yaml:"id"`
	Artifacts string   `yaml:"artifacts"`
	Cmd       string   `yaml:"cmd"`
	Args      []string `yaml:"args"`
	Documents []string `yaml:"documents"`
}

// read reads goreleaser.yaml. It refuses what the types above do not name: a snapshot
// would lack it.
func read(path string) (c config, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&c); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	for _, s := range c.SBOMs {
		if s.Artifacts != "binary" || len(s.Documents) != 1 {
			return c, fmt.Errorf("%s: sboms: want one document for each binary", path)
		}
	}
	if c.Checksum.Algorithm != "sha256" {
		return c, fmt.Errorf("%s: checksum: want sha256", path)
	}
	return c, nil
}
