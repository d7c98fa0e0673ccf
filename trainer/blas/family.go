package blas

// family is a kind of CBLAS library: its files, and how to talk to it beyond
// the CBLAS functions that all have in common.
type family struct {
	spec  string   // its name in PLX_BLAS
	name  string   // its name in messages
	files []string // tried in this order; the system's loader finds names without a folder
}

// families are the libraries known by name, in the order that auto tries them.
// Files with 64-bit integers or suffixed symbols are left out: their names do
// not show whether the functions are called cblas_sgemm.
var families = []family{
	{spec: "openblas", name: "OpenBLAS", files: []string{
		"libopenblas.so.0", "libopenblas.so", "libopenblasp.so.0", "libopenblaso.so.0",
	}},
	{spec: "mkl", name: "MKL", files: []string{
		"libmkl_rt.so.2", "libmkl_rt.so.1", "libmkl_rt.so",
	}},
	{spec: "blis", name: "BLIS", files: []string{
		"libblis.so.4", "libblis.so.3", "libblis.so", "libblis-mt.so",
	}},
}
