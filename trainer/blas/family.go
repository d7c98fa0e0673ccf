package blas

// family is a kind of CBLAS library: where it lies and how to talk to it
// beyond the CBLAS functions, which all have in common.
type family struct {
	spec  string   // as PLX_BLAS names it
	name  string   // as a person names it
	files []string // tried in order; a bare name is looked up by the system's loader
}

// families are the libraries known by name, in the order that auto tries them.
// Files with 64-bit integers or suffixed symbols are left out: their names do
// not say whether the functions are called cblas_sgemm.
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
