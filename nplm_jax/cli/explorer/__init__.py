"""The explorer's page: view has its data, state its link, page its layout, hosts who may ask for it."""
