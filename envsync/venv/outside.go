package venv

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxText is the maximum size in bytes of a package's metadata file; larger
// files are ignored.
const maxText = 1 << 20

// notePackagesOutside returns notes about packages whose files are outside the
// environment, such as editable installs, because hosts do not get those
// files. If the files are in workdir, hosts do get them; notePackagesOutside
// then adds their folder to v.InPlace.
func (v *Venv) notePackagesOutside(ctx context.Context, workdir string) (notes []string) {
	places := map[string]string{} // maps a folder to a description of the package in it
	start, err := v.watchStart(ctx)
	if err != nil {
		notes = append(notes, fmt.Sprintf("what its .pth files add to the module path is not known: %v", err))
	}
	notes = append(notes, v.fromStart(start, places)...)
	slices.Sort(notes)
	sources := maps.Clone(places)
	sites, _ := filepath.Glob(filepath.Join(v.root, "lib", "*", "site-packages")) // Glob returns an error only for a malformed pattern
	for _, site := range sites {
		v.fromRecords(site, places)
	}
	v.inPlace(workdir, sources, places)
	for _, dir := range slices.Sorted(maps.Keys(places)) {
		notes = append(notes, fmt.Sprintf("%s is in %s, which is not sent: hosts miss it unless --workdir sends that folder, or it is installed without -e", places[dir], dir))
	}
	return notes
}

// inPlace handles packages that are not installed in site-packages but
// imported from a source folder. places maps such folders to descriptions for
// the user. If a folder is inside workdir, inPlace deletes it from places and
// adds its import folders to v.InPlace. The import folders are those in
// sources, which the interpreter adds to sys.path. If there are none, it is
// the subfolder src, or else the folder itself.
func (v *Venv) inPlace(workdir string, sources, places map[string]string) {
	if workdir == "" {
		return
	}
	for dir := range places {
		if real, err := filepath.EvalSymlinks(dir); err != nil || !within(workdir, real) {
			continue
		}
		delete(places, dir)
		known := slices.DeleteFunc(slices.Collect(maps.Keys(sources)), func(s string) bool { return !within(dir, s) })
		if src := filepath.Join(dir, "src"); len(known) == 0 && isFolder(src) {
			known = []string{src}
		} else if len(known) == 0 {
			known = []string{dir}
		}
		for _, from := range known {
			if real, err := filepath.EvalSymlinks(from); err == nil && within(workdir, real) {
				relative, _ := filepath.Rel(workdir, real) // both paths are absolute, so Rel returns no error
				v.InPlace = append(v.InPlace, relative)
			}
		}
	}
	slices.Sort(v.InPlace)
	v.InPlace = slices.Compact(v.InPlace)
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// fromRecords adds the source folders of editable installs (pip install -e) to
// places, with a description of each package. pip records these folders in
// direct_url.json.
func (v *Venv) fromRecords(site string, places map[string]string) {
	files, _ := filepath.Glob(filepath.Join(site, "*.dist-info", "direct_url.json")) // Glob returns an error only for a malformed pattern
	for _, file := range files {
		var from struct {
			URL string `json:"url"`
			Dir struct {
				Editable bool `json:"editable"`
			} `json:"dir_info"`
		}
		if json.Unmarshal([]byte(readText(file)), &from) != nil || !from.Dir.Editable {
			continue
		}
		dir := from.URL
		if u, err := url.Parse(from.URL); err == nil && u.Scheme == "file" {
			dir = u.Path
		}
		if v.has(dir) {
			continue
		}
		name, _, _ := strings.Cut(filepath.Base(filepath.Dir(file)), "-")
		for known := range places { // dir replaces its subfolder, such as dir/src, that is already in places
			if within(dir, known) {
				delete(places, known)
			}
		}
		places[cmp.Or(dir, "another folder")] = "the package " + name
	}
}

// has reports whether path is inside the environment or inside the base
// interpreter's folder, both of which are sent to hosts.
func (v *Venv) has(path string) bool {
	return slices.ContainsFunc(v.names, func(name string) bool { return within(name, path) }) || v.baseRoot != "" && within(v.baseRoot, path)
}

func readText(file string) string {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxText {
		return ""
	}
	text, _ := os.ReadFile(file) // an unreadable file is treated as empty
	return string(text)
}
