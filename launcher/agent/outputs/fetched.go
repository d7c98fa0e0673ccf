//go:build linux

package outputs

import (
	"os"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/protocol"
)

// version returns only the fields of o that change if the file is replaced or
// changed: place, name, size and time of modification.
func version(o protocol.HostOutput) protocol.HostOutput {
	return protocol.HostOutput{Place: o.Place, Name: o.Name, Size: o.Size, Modified: o.Modified}
}

// Unfetched counts the files in the job's own folder that the job has made and
// whose present version the user has not fetched. It includes files that
// cannot be fetched. named counts the files that --output patterns match, made
// counts the others. Files outside the job's folder do not count, because
// removing the job keeps them.
func Unfetched(f jobfolder.Folder) (named, made protocol.FileCounts, err error) {
	fetched, err := f.Fetched()
	if err != nil {
		return named, made, err
	}
	known := map[protocol.HostOutput]bool{}
	for _, o := range fetched {
		known[version(o)] = true
	}
	all, err := places(f, protocol.Wanted{Made: true})
	for _, p := range all {
		if err != nil {
			break
		}
		if !p.own {
			continue
		}
		err = p.walk(func(_ *os.Root, o protocol.HostOutput) error {
			if o.Damage != "" && !o.Lost || known[version(o)] {
				return nil
			}
			count := &made
			if p.matches(o.Path()) {
				count = &named
			}
			count.Files++
			count.Bytes += o.Size
			return nil
		})
	}
	made.Named = named.Files
	return named, made, err
}

// RecordFetched adds outputs to the recorded list of files that the user has fetched. A
// new record replaces an earlier one of the same file.
func RecordFetched(f jobfolder.Folder, fetched []protocol.HostOutput) error {
	before, err := f.Fetched()
	if err != nil {
		return err
	}
	known := map[[2]string]bool{}
	for _, o := range fetched {
		known[[2]string{o.Place, o.Name}] = true
	}
	for _, o := range before {
		if !known[[2]string{o.Place, o.Name}] {
			fetched = append(fetched, o)
		}
	}
	return f.WriteFetched(fetched)
}
