//! Which certificates of a store are accepted, and what becomes of a request whose store shows another one.

use std::{error::Error, io};

use contract::BucketUrl;
use futures::{TryStreamExt as _, future::BoxFuture};
use object_store::{
    Certificate, ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
        ReqwestConnector,
    },
};
use rustls::CertificateError;

use super::bucket_error::BucketError;

/// The longest list or error of a store, in bytes: a page has 1000 names of 1 KiB.
const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Returns the settings by which authorities are trusted: those of the system or that the environment names. A system
/// without any, such as a container's image, has those that this program brings along, but not in place of named ones.
pub(crate) fn trust(url: &BucketUrl) -> Result<ClientOptions, BucketError> {
    let mut options = ClientOptions::new();
    let found = rustls_native_certs::load_native_certs();
    let mut named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter().filter_map(std::env::var_os);
    // An empty one is as good as none.
    let named = named.find(|place| !place.is_empty());
    if let (true, Some(place)) = (found.certs.is_empty(), &named) {
        return Err(BucketError::NoAuthorities(place.into()));
    }
    if found.certs.is_empty() {
        for authority in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
            let read = Certificate::from_der(authority);
            let read = read.map_err(|source| BucketError::Setup { url: url.clone(), source })?;
            options = options.with_root_certificate(read);
        }
    }
    Ok(options)
}

/// Returns the first that `find` finds in an error and its causes.
pub(crate) fn in_chain<'e, T>(
    error: &'e (dyn Error + 'static),
    find: impl Fn(&'e (dyn Error + 'static)) -> Option<&'e T>,
) -> Option<&'e T> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = find(error) {
            return Some(found);
        }
        // An error of I/O does not name what it wraps as its source.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    None
}

/// Returns why no connection by TLS came about, which another try does not change: the certificate, or a server that
/// does not speak it.
pub(crate) fn tls_failure<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    in_chain(error, |cause| cause.downcast_ref()).filter(|error| {
        matches!(error, rustls::Error::InvalidCertificate(_) | rustls::Error::InvalidMessage(_))
    })
}

/// Returns what is wrong with the certificate because of which a request failed, if that is the cause.
pub(crate) fn refused_certificate<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e CertificateError> {
    match tls_failure(error) {
        Some(rustls::Error::InvalidCertificate(why)) => Some(why),
        _ => None,
    }
}

/// Connects as the client does by itself, but makes no second try where TLS cannot be spoken.
#[derive(Debug)]
pub(crate) struct OneTryIfRefused;

impl HttpConnector for OneTryIfRefused {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(UntilRefused(ReqwestConnector::default().connect(options)?)))
    }
}

/// A client whose failure of TLS is final.
#[derive(Debug)]
struct UntilRefused(HttpClient);

impl HttpService for UntilRefused {
    fn call<'s, 'f>(&'s self, request: HttpRequest) -> BoxFuture<'f, Result<HttpResponse, HttpError>>
    where
        's: 'f,
        Self: 'f,
    {
        // The content of an object is asked for without a query, and bounded where it is read.
        let has_query = request.uri().query().is_some();
        Box::pin(async move {
            let answer = self.0.execute(request).await.map_err(|error| match tls_failure(&error) {
                Some(_) => HttpError::new(HttpErrorKind::Unknown, error),
                None => error,
            })?;
            if has_query || !answer.status().is_success() { whole(answer).await } else { Ok(answer) }
        })
    }
}

/// Reads a list or an error whole, because the client would read one that never ends.
async fn whole(answer: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (head, body) = answer.into_parts();
    let (mut parts, mut read) = (body.bytes_stream(), Vec::new());
    while let Some(part) = parts.try_next().await? {
        if read.len() + part.len() > MAX_ANSWER_BYTES {
            let error = io::Error::other("the answer is longer than any list or error");
            return Err(HttpError::new(HttpErrorKind::Unknown, error));
        }
        read.extend_from_slice(&part);
    }
    Ok(HttpResponse::from_parts(head, read.into()))
}
