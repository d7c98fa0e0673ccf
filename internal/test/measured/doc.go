// Package measured is what programs that measure plx have in common: the facts
// about the machine that a reader of their numbers must know, samples in files
// of JSON, and pages of documentation into which a table is put:
//
//	m := measured.Describe(root, "make bench-sparse")
//	err := measured.Save("docs/benchmarks/sparse.json", results)
//	err = measured.Insert("docs/benchmarks.md", "Benchmarks", "sparse", table)
//
// It measures nothing itself.
package measured
