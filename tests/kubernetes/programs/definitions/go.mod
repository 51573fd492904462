// Nothing is built of this module: its resource definitions are what helm- and kustomize-controller watch.
module example.invalid/definitions

go 1.26

require github.com/fluxcd/source-controller v1.9.5
